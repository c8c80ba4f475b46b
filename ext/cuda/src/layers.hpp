// A hop of layer-wise importance sampling (LADIES) on a stream: what the CPU's does (tiering/sampling/layer_hop.hpp), bit
// for bit.
#pragma once

#include <cstdint>
#include <tiering/cuda/memory.hpp>
#include <tiering/cuda/sampler.hpp>
#include <tiering/device/node_slots.hpp>

#include "sampler_views.cuh"

namespace tiering::cuda {

struct LayerEdges;
struct LayerCandidates;

/// What a hop over one relation is asked for.
struct LayerTask {
  int64_t num_src, num_dst;
  int64_t fanout;   ///< nodes to draw; -1: all
  uint64_t stream;  ///< folded (seed, epoch, batch, hop, relation)
  NodeKeys keys;    ///< of the source type
  int64_t frontier_bound;
  int max_sms;  ///< multiprocessors for kernels that read lists; 0: all
};

/// Nodes of the source type before the hop.
struct KnownNodes {
  const int64_t* nodes;
  const int64_t* count;
  int64_t bound;
};

/// Where the edges of such a hop go.
struct LayerOutput {
  int32_t* src;
  int32_t* dst;
  int64_t* positions;  ///< null unless asked for
  float* weights;
  int64_t* num_edges;
};

/// Approach:   every edge into the frontier reads its source's id and enters it in a hash table of its own, which numbers
///             the candidates in order of discovery. The edges are sorted by candidate. A candidate's importance is then
///             summed by one thread in the order of its edges, and a destination's weights by one thread in the order of
///             its list, because sums of doubles depend on their order; all other work is cut by edges or by candidates.
///             The clocks of the candidates are sorted to find the first that ring.
/// Arithmetic: of doubles, each operation rounded by itself: compiled without fused multiply-adds, as the CPU's is.
/// Sizes:      how many edges lead into the frontier is waited for.
/// Memory:     56 bytes per edge into the frontier, 52 to 76 per candidate, and 32 per node that samples; kept.
class GpuLayer {
 public:
  /// First: finds the lists of the frontier. Returns where their number of edges stands on the device.
  const int64_t* find_lists(const GpuRelation& relation, const LayerTask& task, const FrontierView& frontier,
                            Faults* faults, cudaStream_t stream);
  /// Then, for that many edges, at least one: draws candidates, and keeps those that are known.
  void draw(const GpuRelation& relation, int64_t num_edges, const KnownNodes& known, Faults* faults,
            cudaStream_t stream);
  /// Candidates that may be kept.
  int64_t most_kept() const { return most_kept_; }
  /// Enters those that are in the table of the batch's nodes, `found` being their slots.
  void enter(const NodeSlots& sources, uint32_t* found, cudaStream_t stream);
  /// How many they are, on the device.
  const int64_t* num_kept() const { return num_kept_.as<int64_t>(); }
  /// Where their local ids are to be put.
  int32_t* local_ids() { return local_ids_.require(most_kept_); }
  /// Last: writes the edges from them.
  void write(const FrontierView& frontier, const LayerOutput& out, cudaStream_t stream);
  int64_t device_bytes() const;

 private:
  LayerEdges edges() const;
  LayerCandidates candidates() const;
  void make_room();
  void collect(const GpuRelation& relation, Faults* faults, cudaStream_t stream);
  void weigh(cudaStream_t stream);
  void choose(const KnownNodes& known, cudaStream_t stream);

  LayerTask task_ = {};
  int64_t num_edges_ = 0, most_candidates_ = 0, most_kept_ = 0;
  Scratch<int64_t> begins_, places_, firsts_;   ///< per node that samples
  Scratch<double> sums_;                        ///< likewise
  Scratch<uint32_t> owners_, sources_, ranks_;  ///< per edge
  Scratch<double> shares_;                      ///< per edge
  Scratch<uint64_t> keys_, sorted_keys_;        ///< per edge
  Scratch<uint32_t> values_, sorted_values_;    ///< per edge
  Scratch<int64_t> slot_keys_;
  Scratch<uint32_t> slot_values_;
  Scratch<int64_t> ids_;  ///< per candidate
  Scratch<double> importance_;
  Scratch<uint32_t> starts_, kept_;
  Scratch<int32_t> local_ids_;
  DeviceMemory num_kept_ = DeviceMemory(sizeof(int64_t));
  Scratch<std::byte> temporary_;
};

}  // namespace tiering::cuda
