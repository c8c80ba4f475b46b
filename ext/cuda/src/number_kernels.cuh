// Kernels of the GPU's sampler that number nodes. Every thread takes items of its own; nothing waits for another thread of
// the grid.
#pragma once

#include <tiering/cuda/sampler.hpp>
#include <tiering/device/node_slots.hpp>

#include "sampler_views.cuh"

namespace tiering::cuda {

/// Seeds enter as edges do.
__global__ void reach_seeds(GpuSeeds seeds, int64_t num_nodes, uint32_t* found, NodeSlots slots, Faults* faults) {
  for (int64_t i = first_item(); i < seeds.size; i += item_stride()) {
    const int64_t id = seeds.ids[i];
    const bool sound = id >= 0 && id < num_nodes;
    if (!sound) atomicMin(&faults->seed, static_cast<unsigned long long>(i));
    found[i] = slots.reach(sound ? id : 0, static_cast<uint32_t>(i), DeviceAtomics{});
  }
}

/// Edges that have been entered in the table, and what numbers their sources.
struct Reached {
  Total total;
  int64_t bound;          ///< room: the total is not more
  const uint32_t* found;  ///< per edge, slot of its source
  NodeSlots slots;
  uint32_t* ranks;  ///< bound + 1: marks of the edges that are the first to lead to their source, then prefix sums
};

/// 1 for edges that are the first to lead to their source, else 0; 0 behind the last.
__global__ void mark_first(Reached edges) {
  const int64_t total = edges.total.get();
  for (int64_t e = first_item(); e <= edges.bound; e += item_stride())
    edges.ranks[e] = e < total && edges.slots.is_first(edges.found[e], static_cast<uint32_t>(e)) ? 1 : 0;
}

/// Gives new nodes their local ids, and edges their sources'. `known`: nodes before.
__global__ void number_nodes(Reached edges, const int64_t* known, int64_t* nodes, int32_t* src) {
  const int64_t total = edges.total.get(), before = *known;
  for (int64_t e = first_item(); e < total; e += item_stride()) {
    const uint32_t slot = edges.found[e];
    const int64_t local = edges.slots.local_id(slot, before, edges.ranks);
    if (src != nullptr) src[e] = static_cast<int32_t>(local);
    if (edges.slots.is_first(slot, static_cast<uint32_t>(e))) nodes[local] = edges.slots.keys[slot];
  }
}

/// Writes the new nodes' local ids into the table, how many nodes each type has now, and how many edges there are.
__global__ void settle(Reached edges, const int64_t* known, int64_t* known_after, int types, int type,
                       int64_t* num_edges) {
  const int64_t total = edges.total.get();
  for (int64_t e = first_item(); e < total; e += item_stride()) {
    // The sums rise by one behind a first edge. The table is not asked: others write to it now.
    if (edges.ranks[e + 1] != edges.ranks[e])
      edges.slots.values[edges.found[e]] = static_cast<uint32_t>(known[type] + edges.ranks[e]);
  }
  for (int64_t t = first_item(); t < types; t += item_stride())
    known_after[t] = known[t] + (t == type ? edges.ranks[edges.bound] : 0);
  if (first_item() == 0 && num_edges != nullptr) *num_edges = total;
}

/// Enters known nodes into an empty table.
__global__ void enter_known(const int64_t* nodes, int64_t count, NodeSlots slots) {
  for (int64_t i = first_item(); i < count; i += item_stride())
    slots.values[slots.find_or_add(nodes[i], DeviceAtomics{})] = static_cast<uint32_t>(i);
}

/// A hop that skips a relation finds no new nodes and has no edges.
__global__ void pass_on(const int64_t* known, int64_t* known_after, int types, int64_t* num_edges) {
  for (int64_t t = first_item(); t < types; t += item_stride()) known_after[t] = known[t];
  if (first_item() == 0) *num_edges = 0;
}

/// Local ids as torch's index operations want them.
__global__ void widen(const int32_t* from, int64_t count, int64_t* to) {
  for (int64_t i = first_item(); i < count; i += item_stride()) to[i] = from[i];
}

}  // namespace tiering::cuda
