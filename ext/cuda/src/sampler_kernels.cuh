// Kernels of the GPU's sampler: they draw from lists and number nodes. Every thread takes items of its own; nothing waits
// for another thread of the grid, and no thread walks along a list.
#pragma once

#include <tiering/cuda/launch.hpp>
#include <tiering/cuda/sampler.hpp>
#include <tiering/device/node_slots.hpp>

namespace tiering::cuda {

/// The first faults of a batch: words that hold the least number seen.
struct Faults {
  unsigned long long seed = ~0ULL;    ///< place of a seed that is no node
  unsigned long long column = ~0ULL;  ///< column whose list is not sound
  unsigned long long edge = ~0ULL;    ///< edge of a hop that leads to no node
};

/// For node_slots.hpp.
struct DeviceAtomics {
  TIERING_SHARED int64_t peek([[maybe_unused]] const int64_t* where) const {
    return TIERING_ON_DEVICE(__ldcg(reinterpret_cast<const long long*>(where)));
  }
  TIERING_SHARED int64_t exchange_if([[maybe_unused]] int64_t* where, [[maybe_unused]] int64_t expected,
                                     [[maybe_unused]] int64_t next) const {
    return TIERING_ON_DEVICE(static_cast<int64_t>(atomicCAS(reinterpret_cast<unsigned long long*>(where),
                                                            static_cast<unsigned long long>(expected),
                                                            static_cast<unsigned long long>(next))));
  }
  /// Most edges lead to nodes that an earlier one has led to: a read tells so, and is cheaper.
  TIERING_SHARED void lower([[maybe_unused]] uint32_t* where, [[maybe_unused]] uint32_t value) const {
    (void)TIERING_ON_DEVICE(__ldcg(where) > value ? atomicMin(where, value) : 0U);
  }
};

/// A hop's frontier: a range of the destination type's list whose ends are known to the device alone.
struct FrontierView {
  const int64_t* nodes;
  const int64_t* begin;  ///< null: 0
  const int64_t* end;

  TIERING_DEVICE int64_t first() const { return begin == nullptr ? 0 : *begin; }
  TIERING_DEVICE int64_t size() const { return *end - first(); }
};

/// How many edges a hop has.
struct Total {
  const int64_t* there;  ///< where only the device knows
  int64_t here = 0;      ///< where the host knows: `there` is null

  TIERING_DEVICE int64_t get() const { return there == nullptr ? here : *there; }
};

/// The frontier node that edge `edge` belongs to: the last whose edges begin at or before it. `counts` are prefix sums.
TIERING_DEVICE int64_t owner_of(int64_t edge, const int64_t* counts, int64_t bound) {
  int64_t low = 0, high = bound;  // counts[low] <= edge < counts[high]
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (counts[middle] <= edge ? low : high) = middle;
  }
  return low;
}

/// How a hop over one relation draws.
struct DrawTask {
  int64_t num_src;
  int64_t num_dst;
  int64_t fanout;  ///< below 0: lists are taken whole
  Rule rule;
  uint64_t stream;  ///< folded (seed, epoch, batch, hop, relation)

  TIERING_SHARED bool whole() const { return fanout < 0; }
};

/// The frontier's adjacency lists; an entry per node. A place is an address divided by the size of an index, so
/// that it says which memory to read.
struct FrontierLists {
  int64_t* counts;    ///< edges taken, 0 behind the frontier's end; afterwards their prefix sums
  int64_t* bases;     ///< place of the first entry
  int64_t* degrees;   //
  uint64_t* keys;     ///< of the node's random numbers; null: none are drawn, or by another kernel
  int64_t* firsts;    ///< what turns places into those in the relation's indices; null: not asked for
  int64_t* places;    ///< where drawn by weight: `fanout` places per node; else null
  int64_t* taken;     ///< memory for weighted draws, as `places`
  int64_t num_nodes;  ///< room: the frontier is not larger
};

/// Reads begin and end of every list, once: 16 bytes a node over the link where lists lie in host memory.
template <typename Index>
__global__ void look_up(AdjacencyTable<Index> table, NodeKeys keys, FrontierView frontier, DrawTask task,
                        FrontierLists out, Faults* faults) {
  const int64_t first = frontier.first(), size = frontier.size();
  for (int64_t i = first_item(); i <= out.num_nodes; i += item_stride()) {
    out.counts[i] = 0;
    if (i >= size || i >= out.num_nodes) continue;
    const int64_t node = frontier.nodes[first + i];
    if (node >= task.num_dst) continue;  // node 0 of a type without nodes: what led there is a fault already
    const NeighborList<Index> list = table.list(node);
    if (list.degree < 0) {
      atomicMin(&faults->column, static_cast<unsigned long long>(node));
      continue;
    }
    if (list.degree == 0) continue;
    out.bases[i] = static_cast<int64_t>(reinterpret_cast<uintptr_t>(list.ids) / sizeof(Index));
    out.degrees[i] = list.degree;
    out.counts[i] = task.rule == Rule::replacement ? most_replaced(list.degree, task.fanout)
                                                   : most_distinct(list.degree, task.fanout);
    if (out.keys != nullptr) out.keys[i] = keys.key_of(node);
    if (out.firsts != nullptr) out.firsts[i] = list.first - out.bases[i];
  }
}

/// Draws by weight are successive, so that a node's are one thread's: a search for each in the sums.
template <typename Index>
__global__ void draw_by_weight(AdjacencyTable<Index> table, FrontierView frontier, DrawTask task, FrontierLists out) {
  const int64_t first = frontier.first(), size = frontier.size();
  for (int64_t i = first_item(); i < out.num_nodes && i < size; i += item_stride()) {
    if (out.counts[i] == 0) continue;
    const int64_t degree = out.degrees[i], at = i * task.fanout;
    const ListWeights weights{table.list(frontier.nodes[first + i]).sums};
    out.counts[i] = degree <= task.fanout
                        ? take_positive(out.bases[i], degree, weights, out.places + at)
                        : draw_weighted(out.bases[i], degree, task.fanout, weights, Stream(task.stream, out.keys[i]),
                                        out.places + at, out.taken + at);
  }
}

/// Marks what is taken of whole lists by weight: 1 for entries of a weight above 0, else 0; 0 behind the last.
template <typename Index>
__global__ void mark_positive(AdjacencyTable<Index> table, FrontierView frontier, FrontierLists lists, int64_t total,
                              uint32_t* mask) {
  const int64_t first = frontier.first();
  for (int64_t e = first_item(); e <= total; e += item_stride()) {
    mask[e] = 0;
    if (e == total) continue;
    const int64_t i = owner_of(e, lists.counts, lists.num_nodes);
    const ListWeights weights{table.list(frontier.nodes[first + i]).sums};
    mask[e] = weights.of(e - lists.counts[i]) > 0 ? 1 : 0;
  }
}

/// Where the edges of a hop and relation are written.
struct EdgeArrays {
  int32_t* src;
  int32_t* dst;
  int64_t* positions;  ///< null unless asked for
  uint32_t* slots;     ///< per edge, of its source
};

/// Reads the neighbor of frontier node `i` at a place, and enters it as edge `e`.
template <typename Index>
TIERING_DEVICE void reach(int64_t e, int64_t i, int64_t place, int64_t first, const DrawTask& task,
                          const FrontierLists& lists, const EdgeArrays& edges, const NodeSlots& slots, Faults* faults) {
  const auto id = static_cast<int64_t>(*reinterpret_cast<const Index*>(static_cast<uintptr_t>(place) * sizeof(Index)));
  edges.dst[e] = static_cast<int32_t>(first + i);
  if (edges.positions != nullptr) edges.positions[e] = place + lists.firsts[i];
  const bool sound = id >= 0 && id < task.num_src;
  if (!sound) atomicMin(&faults->edge, static_cast<unsigned long long>(e));
  // Node 0 stands for what is none: the batch is given up.
  edges.slots[e] = slots.reach(sound ? id : 0, static_cast<uint32_t>(e), DeviceAtomics{});
}

/// The place of draw number `number` of frontier node `i`.
TIERING_DEVICE int64_t drawn_place(int64_t i, int64_t number, const DrawTask& task, const FrontierLists& lists) {
  if (lists.places != nullptr) return lists.places[i * task.fanout + number];
  const int64_t base = lists.bases[i], degree = lists.degrees[i];
  if (task.rule == Rule::uniform && degree <= task.fanout) return base + number;
  Stream random(task.stream, lists.keys[i]);
  if (task.rule == Rule::uniform) return distinct_place(base, degree, task.fanout, random, number);
  random.skip(static_cast<uint64_t>(number));
  return base + static_cast<int64_t>(random.below(static_cast<uint64_t>(degree)));
}

/// A thread for each draw, so that all reads of a list are in flight together.
template <typename Index>
__global__ void reach_drawn(FrontierView frontier, DrawTask task, FrontierLists lists, EdgeArrays edges,
                            NodeSlots slots, Faults* faults) {
  const int64_t first = frontier.first(), items = lists.num_nodes * task.fanout;
  const bool narrow = items >> 32 == 0;  // then the division is several times as fast
  for (int64_t item = first_item(); item < items; item += item_stride()) {
    const int64_t i =
        narrow ? int64_t{static_cast<uint32_t>(item) / static_cast<uint32_t>(task.fanout)} : item / task.fanout;
    const int64_t number = item - i * task.fanout, e = lists.counts[i] + number;
    if (e >= lists.counts[i + 1]) continue;
    reach<Index>(e, i, drawn_place(i, number, task, lists), first, task, lists, edges, slots, faults);
  }
}

/// A thread for each entry of whole lists, whatever node it belongs to. `ranks`: prefix sums of what is taken; null: all.
template <typename Index>
__global__ void reach_whole(FrontierView frontier, DrawTask task, FrontierLists lists, const uint32_t* ranks,
                            int64_t total, EdgeArrays edges, NodeSlots slots, Faults* faults) {
  const int64_t first = frontier.first();
  for (int64_t e = first_item(); e < total; e += item_stride()) {
    if (ranks != nullptr && ranks[e + 1] == ranks[e]) continue;
    const int64_t i = owner_of(e, lists.counts, lists.num_nodes), place = lists.bases[i] + (e - lists.counts[i]);
    reach<Index>(ranks == nullptr ? e : int64_t{ranks[e]}, i, place, first, task, lists, edges, slots, faults);
  }
}

/// Writes a count as the edges of a hop are counted.
__global__ void widen_total(const uint32_t* from, int64_t* to) {
  if (first_item() == 0) *to = *from;
}

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

/// Local ids as torch's index operations want them.
__global__ void widen(const int32_t* from, int64_t count, int64_t* to) {
  for (int64_t i = first_item(); i < count; i += item_stride()) to[i] = from[i];
}

}  // namespace tiering::cuda
