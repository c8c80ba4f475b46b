// Neighbor sampling by the GPU over tiered adjacency: the batches of the CPU's sampler (tiering/sampling/sampler.hpp),
// bit for bit.
#pragma once

#include <memory>
#include <tiering/cuda/memory.hpp>
#include <tiering/device/adjacency_table.hpp>
#include <tiering/device/draws.hpp>
#include <variant>
#include <vector>

namespace tiering::cuda {

/// One relation's adjacency, in memory that the device can read.
struct GpuRelation {
  int src_type = 0, dst_type = 0;
  std::variant<AdjacencyTable<int32_t>, AdjacencyTable<int64_t>> table;
};

struct GpuSamplerConfig {
  std::vector<int64_t> num_nodes;             ///< per node type
  std::vector<GpuRelation> relations;         //
  std::vector<std::vector<int64_t>> fanouts;  ///< hop x relation; -1 = all neighbors, 0 = skip
  bool only_new = false;                      ///< only nodes first found at the hop before sample
  Rule rule = Rule::uniform;
  std::vector<NodeKeys> node_keys;  ///< per node type
  uint64_t seed = 0;
  int max_sms = 0;         ///< multiprocessors for kernels that read lists; 0: all
  bool positions = false;  ///< also say where in the relation's indices each edge stands
};

struct GpuSeeds {
  const int64_t* ids = nullptr;  ///< in memory that the device can read until the batch is finished
  int64_t size = 0;
};

struct GpuBatchSizes {
  std::vector<std::vector<int64_t>> num_nodes;  ///< (hops + 1) x type: nodes known after 0, 1, ... hops
  std::vector<std::vector<int64_t>> num_edges;  ///< hop x relation
};

/// Samples batch after batch on one device. Not thread-safe: one batch at a time; the stream must be the same for all.
///
/// Per hop and relation, a thread per frontier node reads begin and end of its list; a prefix sum of what is taken
/// places the edges; a thread per edge draws its place, reads the neighbor's id and enters it in a hash table
/// (node_slots.hpp); a second prefix sum numbers the new nodes in order of discovery. Sizes stay on the device until
/// finish(): kernels are launched for the most that a hop can reach; above `kMostUnseen` edges, or unbounded, its true
/// size is waited for. Cost: of lists in host memory 16 bytes per frontier node and an id per edge, in sectors of 32
/// bytes; by weight the sums that a search touches. Memory: grows with the largest batch and is kept: 32 to 56 bytes
/// per node, 8 per edge (8 more with positions), for the largest hop 8 more per edge (24 if weighted) and 32 per node
/// that samples.
class GpuSampler {
 public:
  static constexpr int64_t kMostUnseen = int64_t{1} << 24;

  /// On the current device.
  explicit GpuSampler(GpuSamplerConfig config);
  ~GpuSampler();
  GpuSampler(const GpuSampler&) = delete;
  GpuSampler& operator=(const GpuSampler&) = delete;

  /// Puts a batch on the stream. The batch before must have been written. A seed that comes twice counts once, where it
  /// came first.
  void start(const std::vector<GpuSeeds>& seeds, uint64_t epoch, uint64_t batch, cudaStream_t stream);
  /// Waits for the batch. Throws InputError where a seed or the adjacency is not sound; the next batch may be started
  /// all the same.
  GpuBatchSizes finish();

  /// Copies the ids of a type's nodes, in order of discovery.
  void write_nodes(int type, int64_t* out, cudaStream_t stream) const;
  /// Writes the edges of a hop and relation as local ids: num_edges sources, then as many destinations.
  void write_edges(int hop, int relation, int64_t* out, cudaStream_t stream) const;
  /// Copies the places of a hop's edges in the relation's indices.
  void write_positions(int hop, int relation, int64_t* out, cudaStream_t stream) const;

  int64_t device_bytes() const;

 private:
  struct Memory;
  std::unique_ptr<Memory> memory_;
};

}  // namespace tiering::cuda
