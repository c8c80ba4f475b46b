// Deterministic neighbour sampling over one or more relations.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "tiering/sampling/growing_array.hpp"

namespace tiering {

/// Read-only array of int32 or int64 ids that somebody else owns.
struct IdArray {
  const int32_t* narrow = nullptr;  // exactly one of the two is set when the array is there
  const int64_t* wide = nullptr;
  int64_t size = 0;

  bool absent() const { return narrow == nullptr && wide == nullptr; }
  /// Entry i as a random key; i itself where the array is absent.
  uint64_t key_of(int64_t i) const {
    if (narrow != nullptr) return static_cast<uint64_t>(narrow[i]);
    return static_cast<uint64_t>(wide != nullptr ? wide[i] : i);
  }
  void prefetch(int64_t i) const {
    if (narrow != nullptr) __builtin_prefetch(narrow + i);
    if (wide != nullptr) __builtin_prefetch(wide + i);
  }
};

/// One relation's adjacency as CSC: column = destination, indices = its in-neighbours.
struct RelationView {
  int src_type = 0;
  int dst_type = 0;
  const int64_t* indptr = nullptr;  // num_nodes[dst_type] + 1
  IdArray indices;                  // values in [0, num_nodes[src_type])
};

/// Which nodes sample at hop h: all found so far (DGL, GraphBolt), or only those first found at hop h - 1
/// (PyG).
enum class Frontier { all, only_new };

struct SamplerConfig {
  std::vector<int64_t> num_nodes;             // per node type
  std::vector<RelationView> relations;        //
  std::vector<std::vector<int64_t>> fanouts;  // hop x relation; -1 = all neighbours, 0 = skip
  Frontier frontier = Frontier::all;
  std::vector<IdArray> node_keys;  // per node type: random key of node v, v itself where absent
  uint64_t seed = 0;
};

/// Edges sampled at one hop of one relation, grouped by destination in frontier order.
struct SampledEdges {
  GrowingArray<int32_t> src;        // place in nodes[src_type]
  GrowingArray<int32_t> dst;        // place in nodes[dst_type]
  GrowingArray<int64_t> positions;  // place in the relation's indices; filled on request
  GrowingArray<float> weights;      // filled by rules that weigh their edges
};

struct SampledBatch {
  std::vector<GrowingArray<int64_t>> nodes;     // per type: ids in order of discovery, seeds first
  std::vector<std::vector<int64_t>> num_nodes;  // (hops + 1) x type: nodes known after 0, 1, ... hops
  std::vector<std::vector<SampledEdges>> hops;  // hop x relation
};

struct SeedView {
  const int64_t* ids = nullptr;
  int64_t size = 0;
};

/// All batches of an epoch: seeds of type t in batch b are ids[t][offsets[t][b] .. offsets[t][b + 1]).
struct EpochSeeds {
  std::vector<const int64_t*> ids;
  std::vector<const int64_t*> offsets;
  std::vector<int64_t> num_batches;  // per type: entries of offsets less one
};

/// Counters that count_accesses() adds to; a null pointer is not counted.
struct AccessCounts {
  std::vector<int64_t*> features;   // per type: +1 for every unique node of a batch
  std::vector<int64_t*> adjacency;  // per relation: +1 for every time a node samples there
};

class Sampler {
 public:
  explicit Sampler(SamplerConfig config);
  ~Sampler();

  /// Samples one batch. A seed that comes twice counts once, where it came first.
  /// Safe to call from many threads at once: each call takes a workspace of its own.
  SampledBatch sample(const std::vector<SeedView>& seeds, uint64_t epoch, uint64_t batch,
                      bool want_positions);

  /// Samples batches [first, last) of an epoch and adds their accesses to `counts`; whole batches run in
  /// parallel.
  void count_accesses(const EpochSeeds& seeds, uint64_t epoch, int64_t first, int64_t last,
                      const AccessCounts& counts, int threads);

  const SamplerConfig& config() const { return config_; }

 private:
  struct Workspace;
  class Lease;

  SamplerConfig config_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Workspace>> idle_;  // guarded by mutex_
};

/// Deterministic permutation of 0 .. n - 1 (Fisher-Yates) for one epoch, written to `out`.
void epoch_order(int64_t n, uint64_t seed, uint64_t epoch, int64_t* out);

}  // namespace tiering
