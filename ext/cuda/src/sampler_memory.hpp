// Memory that the GPU's sampler keeps from batch to batch.
#pragma once

#include <tiering/cuda/sampler.hpp>
#include <tiering/device/node_slots.hpp>

#include "sampler_views.cuh"

namespace tiering::cuda {

inline constexpr int64_t kMostLocal = int64_t{1} << 31;  // local ids, and edges of a hop and relation

/// The numbering of one node type.
struct TypeNodes {
  Scratch<int64_t> nodes, keys;
  Scratch<uint32_t> values;
  int bits = 0;
  int64_t bound = 0;  ///< nodes that the batch may have reached so far

  NodeSlots slots() const { return {keys.data(), values.data(), bits}; }
};

/// Edges of a hop and relation until they are written.
struct GroupEdges {
  Scratch<int32_t> src, dst;
  Scratch<int64_t> positions;
};

struct GpuSampler::Memory {
  explicit Memory(const GpuSamplerConfig& config)
      : types(config.num_nodes.size()),
        groups(config.fanouts.size() * config.relations.size()),
        steps(types.size() + groups.size() + 1),
        known(static_cast<int64_t>((steps * types.size() + groups.size()) * sizeof(int64_t))),
        faults(sizeof(Faults)),
        report(known.size() + static_cast<int64_t>(sizeof(Faults))) {}

  /// Nodes per type after a step: one for each type's seeds, then one for each hop and relation.
  int64_t* known_after(size_t step) const { return known.as<int64_t>() + step * types.size(); }
  int64_t* num_edges(size_t group) const { return known_after(steps) + group; }

  std::vector<TypeNodes> types;
  std::vector<GroupEdges> groups;  ///< hop by hop, its relations
  size_t steps;
  DeviceMemory known;
  DeviceMemory faults;
  PinnedMemory report;  ///< `known` and `faults` on the host
  Scratch<int64_t> counts, bases, degrees, firsts, places, taken, total;
  Scratch<uint64_t> keys;
  Scratch<uint32_t> found, ranks, mask;
  Scratch<std::byte> sums;
  GpuEvent ready;
  size_t step = 0;                      ///< the last that is on the stream
  size_t hop_start = 0;                 ///< the last before this hop
  size_t hop_before = 0;                ///< the last before the hop before
  std::vector<int64_t> bound_at_start;  ///< of the frontier, per type
};

}  // namespace tiering::cuda
