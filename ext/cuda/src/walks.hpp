// A hop of random walks with restart (PinSAGE) on a stream: what the CPU's does (tiering/sampling/walk_hop.hpp), bit for
// bit.
#pragma once

#include <cstdint>
#include <tiering/cuda/memory.hpp>
#include <tiering/cuda/sampler.hpp>
#include <tiering/device/node_slots.hpp>

#include "sampler_views.cuh"

namespace tiering::cuda {

struct WalkRelation;
struct Visits;

/// What a hop over one metapath is asked for.
struct WalkTask {
  size_t metapath;
  int64_t fanout;   ///< of the most visited nodes; -1: all
  uint64_t stream;  ///< folded (seed, epoch, batch, hop, metapath)
  FrontierView frontier;
  int64_t frontier_bound;
};

/// Where the edges of such a hop go.
struct WalkedEdges {
  int32_t* dst;
  float* weights;   ///< visits
  uint32_t* slots;  ///< of the edge's source in `sources`
  NodeSlots sources;
};

/// Approach:  every thread takes one walk, whose random numbers are its own. What it visits it leaves as one word, the
///            frontier node above the visited one; sorted, equal words lie side by side and are counted. The visited
///            nodes are then sorted by their keys, and in that order by (frontier node, fewer visits), so that each
///            frontier node's most visited come first and equal ones by lower key; the first `fanout` are its edges.
/// Sizes:     none is waited for. Frontier nodes are worked on in turns of `visits_at_a_time` visits.
/// Memory:    52 bytes per visit of a turn, unless one node alone makes more visits; kept from hop to hop.
class GpuWalks {
 public:
  /// On the current device. `config` must outlive it.
  explicit GpuWalks(const GpuSamplerConfig& config);

  int src_type(size_t metapath) const;
  int dst_type(size_t metapath) const;
  int64_t visits_per_node() const { return config_.walks.num_walks * config_.walks.walk_length; }
  /// Edges that a frontier node may get.
  int64_t most_edges(size_t metapath, int64_t fanout) const;

  /// Puts a hop on the stream.
  void run(const WalkTask& task, const WalkedEdges& edges, Faults* faults, cudaStream_t stream);
  /// How many edges the last hop has, on the device.
  const int64_t* total() const { return total_.as<int64_t>(); }
  int64_t device_bytes() const;

 private:
  void run_turn(const WalkTask& task, int64_t begin, int64_t nodes, const WalkedEdges& edges, Faults* faults,
                cudaStream_t stream);
  void walk(const WalkTask& task, int64_t begin, const Visits& visits, Faults* faults, cudaStream_t stream);
  void count(const Visits& visits, cudaStream_t stream);
  void order(const Visits& visits, const NodeKeys& keys, cudaStream_t stream);

  const GpuSamplerConfig& config_;
  DeviceMemory relations_;  ///< WalkRelation each
  DeviceMemory paths_;      ///< int32: the metapaths' relations, one metapath behind the other
  std::vector<int64_t> path_begins_;
  DeviceMemory total_;
  Scratch<uint64_t> sorted_, keys_, other_keys_;
  Scratch<uint32_t> values_, other_values_, runs_, starts_, taken_, firsts_;
  Scratch<std::byte> temporary_;
};

}  // namespace tiering::cuda
