// Kernels of the GPU's sampler. Every thread takes items of its own; nothing waits for another thread of the grid.
#pragma once

#include <cstdint>
#include <tiering/cuda/launch.hpp>
#include <tiering/cuda/sampler.hpp>
#include <tiering/device/adjacency_table.hpp>
#include <tiering/device/draws.hpp>
#include <tiering/device/node_slots.hpp>

#include "sampler_views.cuh"

namespace tiering::cuda {

/// How a hop over one relation draws.
struct DrawTask {
  int64_t num_src;
  int64_t num_dst;
  int64_t fanout;
  DrawRule rule;
  uint64_t stream;  ///< folded (seed, epoch, batch, hop, relation)
};

/// What the frontier drew, before the edges are put together. A place is an address divided by the size of an index, so
/// that it says which memory to read.
struct DrawnLists {
  int64_t* counts;  ///< edges per frontier node, 0 behind its end; afterwards their prefix sums
  int64_t* places;  ///< `stride` per frontier node, or the first of the list where all are taken
  int64_t* taken;   ///< memory for weighted draws, as `places`
  int64_t* firsts;  ///< per frontier node: what turns places into those in the relation's indices; null: not asked for
  int64_t* of_edges;  ///< per edge, its place; null unless edges of weight 0 are left out of whole lists
  int64_t stride;     ///< 0: the list is taken whole
};

template <typename Index>
__global__ void draw(AdjacencyTable<Index> table, NodeKeys keys, FrontierView frontier, DrawTask task, DrawnLists out,
                     int64_t bound, Faults* faults) {
  const int64_t first = frontier.first(), size = frontier.size();
  for (int64_t i = first_item(); i <= bound; i += item_stride()) {
    out.counts[i] = 0;
    if (i >= size || i >= bound) continue;
    const int64_t node = frontier.nodes[first + i];
    if (node >= task.num_dst) continue;  // node 0 of a type without nodes: what led there is a fault already
    const NeighbourList<Index> list = table.list(node);
    if (list.degree < 0) {
      atomicMin(&faults->column, static_cast<unsigned long long>(node));
      continue;
    }
    if (list.degree == 0) continue;
    const auto base = static_cast<int64_t>(reinterpret_cast<uintptr_t>(list.ids) / sizeof(Index));
    if (out.firsts != nullptr) out.firsts[i] = list.first - base;
    if (out.stride == 0) {
      out.places[i] = base;
      out.counts[i] = list.degree;
      continue;
    }
    const Stream random(task.stream, keys.key_of(node));
    int64_t* const places = out.places + i * out.stride;
    if (task.rule == DrawRule::replacement) {
      draw_replaced(base, list.degree, task.fanout, random, places);
      out.counts[i] = task.fanout;
    } else if (task.rule == DrawRule::weighted) {
      const ListWeights weights{list.sums};
      out.counts[i] = list.degree <= task.fanout ? take_positive(base, list.degree, weights, places)
                                                 : draw_weighted(base, list.degree, task.fanout, weights, random,
                                                                 places, out.taken + i * out.stride);
    } else if (list.degree <= task.fanout) {
      out.counts[i] = take_all(base, list.degree, places);
    } else {
      draw_distinct(base, list.degree, task.fanout, random, places);
      out.counts[i] = task.fanout;
    }
  }
}

/// Weighted and all: edges of weight 0 are left out, so how many a list has is counted first.
template <typename Index>
__global__ void count_positive(AdjacencyTable<Index> table, FrontierView frontier, DrawnLists out, int64_t bound) {
  const int64_t first = frontier.first(), size = frontier.size();
  for (int64_t i = first_item(); i < bound; i += item_stride()) {
    if (i >= size || out.counts[i] == 0) continue;
    const NeighbourList<Index> list = table.list(frontier.nodes[first + i]);
    const ListWeights weights{list.sums};
    int64_t count = 0;
    for (int64_t place = 0; place < list.degree; ++place) count += weights.of(place) > 0;
    out.counts[i] = count;
  }
}

/// Then, with prefix sums in `counts`, their places are written.
template <typename Index>
__global__ void place_positive(AdjacencyTable<Index> table, FrontierView frontier, DrawnLists out, int64_t bound) {
  const int64_t first = frontier.first(), size = frontier.size();
  for (int64_t i = first_item(); i < bound && i < size; i += item_stride()) {
    if (out.counts[i + 1] == out.counts[i]) continue;
    const NeighbourList<Index> list = table.list(frontier.nodes[first + i]);
    const ListWeights weights{list.sums};
    int64_t at = out.counts[i];
    for (int64_t place = 0; place < list.degree; ++place)
      if (weights.of(place) > 0) out.of_edges[at++] = out.places[i] + place;
  }
}

/// The edges of a hop and relation.
struct EdgeArrays {
  int32_t* src;
  int32_t* dst;
  int64_t* positions;  ///< null unless asked for
  uint32_t* slots;     ///< per edge, of its source
};

/// One edge after the other, whatever node it belongs to: long lists are no one thread's work.
template <typename Index>
__global__ void reach(FrontierView frontier, DrawTask task, DrawnLists drawn, int64_t frontier_bound, EdgeArrays edges,
                      int64_t bound, NodeSlots slots, Faults* faults) {
  const int64_t first = frontier.first(), total = drawn.counts[frontier_bound];
  for (int64_t e = first_item(); e < bound && e < total; e += item_stride()) {
    const int64_t i = owner_of(e, drawn.counts, frontier_bound), number = e - drawn.counts[i];
    const int64_t place = drawn.of_edges != nullptr ? drawn.of_edges[e]
                          : drawn.stride != 0       ? drawn.places[i * drawn.stride + number]
                                                    : drawn.places[i] + number;
    const auto id =
        static_cast<int64_t>(*reinterpret_cast<const Index*>(static_cast<uintptr_t>(place) * sizeof(Index)));
    edges.dst[e] = static_cast<int32_t>(first + i);
    if (edges.positions != nullptr) edges.positions[e] = place + drawn.firsts[i];
    if (id < 0 || id >= task.num_src) {
      atomicMin(&faults->edge, static_cast<unsigned long long>(e));
      edges.slots[e] = slots.reach(0, static_cast<uint32_t>(e), DeviceAtomics{});  // any: the batch is given up
      continue;
    }
    edges.slots[e] = slots.reach(id, static_cast<uint32_t>(e), DeviceAtomics{});
  }
}

/// Seeds enter as edges do.
__global__ void reach_seeds(const int64_t* ids, int64_t count, int64_t num_nodes, uint32_t* found, NodeSlots slots,
                            Faults* faults) {
  for (int64_t i = first_item(); i < count; i += item_stride()) {
    const int64_t id = ids[i];
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
