// One hop over one relation: the kernel of neighbor sampling. Lists with times ascend in time: an instance of a disjoint
// batch sees a part of each.
#pragma once

#include <bit>

#include "hop_task.hpp"
#include "tiering/sampling/draw.hpp"

namespace tiering {

/// Searches lists side by side, so that the memory accesses of one overlap those of the others.
class ListSearch {
 public:
  static constexpr int64_t kMost = 32;  ///< lists at a time, each of which may be added twice

  explicit ListSearch(std::span<const int64_t> times) : times_(times.data()) {}

  void add(ListRange list) {
    first_[count_] = list.begin;
    size_[count_++] = list.degree;
    prefetch(count_ - 1);
  }

  /// Moves the begin of each list to its first entry for which `before(list, time word)` no longer holds. No step is a
  /// branch that could be mispredicted.
  template <typename Before>
  void run(Before before) {
    for (bool more = true; more;) {
      more = false;
      for (int64_t i = 0; i < count_; ++i) {
        const int64_t half = size_[i] / 2;
        if (half == 0) continue;
        first_[i] += half & -static_cast<int64_t>(before(i, times_[first_[i] + half - 1]));
        size_[i] -= half;
        prefetch(i);
        more |= size_[i] > 1;
      }
    }
    for (int64_t i = 0; i < count_; ++i) first_[i] += size_[i] == 1 && before(i, times_[first_[i]]);
  }
  int64_t found(int64_t i) const { return first_[i]; }

 private:
  void prefetch(int64_t i) const { __builtin_prefetch(times_ + first_[i] + std::max<int64_t>(size_[i] / 2, 1) - 1); }

  const int64_t* times_;
  int64_t count_ = 0, first_[2 * kMost], size_[2 * kMost];
};

/// The entries of a list that come before those that an instance of time `now` sees, and before the end of these.
template <typename Time>
struct Visibility {
  Time window;

  bool before_end(Time time, Time now) const { return time <= now; }
  bool before_begin(Time time, Time now) const {
    if constexpr (std::is_same_v<Time, double>) return (time < now) & (now - time > window);
    // The difference of integers fits into 64 bits where it counts.
    const uint64_t age = static_cast<uint64_t>(now) - static_cast<uint64_t>(time);
    return (time < now) & (age > static_cast<uint64_t>(window));
  }
};

/// Cuts lists to the entries that the instances of their keys see.
template <typename Time>
void keep_visible(const HopTask& task, const int64_t* keys, int64_t size, ListRange* lists) {
  const TimeRule& rule = task.config->time;
  const Visibility<Time> visibility{std::bit_cast<Time>(rule.window)};
  Time now[ListSearch::kMost];
  ListSearch search(task.relation->times);  // of the ends of lists, then, in a window, of their begins
  for (int64_t i = 0; i < size; ++i) {
    now[i] = std::bit_cast<Time>(task.clocks[task.instance_of(keys[i])]);
    search.add(lists[i]);
  }
  for (int64_t i = 0; i < size && rule.window != -1; ++i) search.add(lists[i]);
  search.run([&](int64_t i, int64_t word) -> bool {
    const auto time = std::bit_cast<Time>(word);
    return i < size ? visibility.before_end(time, now[i]) : visibility.before_begin(time, now[i - size]);
  });
  for (int64_t i = 0; i < size; ++i) {
    const int64_t begin = rule.window == -1 ? lists[i].begin : search.found(size + i);
    lists[i] = {begin, search.found(i) - begin};
  }
}

/// Cuts up to ListSearch::kMost lists to the entries that the instances of their keys, which stand among the
/// destinations, see.
inline void keep_visible(const HopTask& task, const int64_t* keys, int64_t size, ListRange* lists) {
  if (task.relation->times.empty()) return;
  if (task.visible != nullptr)
    std::copy_n(task.visible + (keys - task.destinations->data() - task.frontier_begin), size, lists);
  else if (task.config->time.real)
    keep_visible<double>(task, keys, size, lists);
  else
    keep_visible<int64_t>(task, keys, size, lists);
}

/// Cuts lists to what the draws of their keys may take.
inline void keep_drawable(const HopTask& task, const int64_t* keys, int64_t size, ListRange* lists) {
  keep_visible(task, keys, size, lists);
  if (task.relation->times.empty() || !task.config->time.last || task.fanout < 0) return;
  for (int64_t i = 0; i < size; ++i) {
    const int64_t newest = std::min(lists[i].degree, task.fanout);
    lists[i] = {lists[i].begin + lists[i].degree - newest, newest};
  }
}

/// A hop is three sweeps - choose places, read the ids there, look the ids up - each of which misses the cache at every
/// element, and so prefetches what it reads a while later. Choosing goes by blocks of nodes, reading follows it a block
/// behind; looking up follows by pieces of the frontier, whose places the caches hold.
/// `kDisjoint`: nodes are keys with their instance, which also says what is visible.
template <typename Draw, bool kDisjoint>
class RelationHop {
 public:
  RelationHop(const HopTask& task, Draw& draw, HopScratch& scratch) : task_(task), draw_(draw), scratch_(scratch) {}

  void run() {
    for (int64_t first = task_.frontier_begin, last; first < task_.frontier_end; first = last) {
      scratch_.places.set_size(0);
      scratch_.taken.set_size(0);
      task_.relation->indices.visit([&](const auto& indices) { last = choose_and_read(first, indices.data()); });
      look_up(first, last, scratch_.places.data(), ids().data(), scratch_.places.size(), scratch_.taken.data());
    }
  }

  /// Chooses which places of the lists of a piece's nodes are taken, from `first` on, until there are `edges`; they and
  /// how many a node takes are appended. `chosen` sees the places [begin, end) of nodes from `node` on. Returns the end
  /// of the piece.
  template <typename Chosen>
  int64_t choose(int64_t first, int64_t edges, Chosen chosen) {
    GrowingArray<int64_t>& places = scratch_.places;
    GrowingArray<int32_t>& taken = scratch_.taken;
    const int64_t most_places = edges < INT64_MAX - places.size() ? places.size() + edges : INT64_MAX;
    prefetch_lists(first, std::min(first + kBlockNodes, task_.frontier_end));
    int64_t at = first;
    for (; at < task_.frontier_end && places.size() < most_places; at += kBlockNodes) {
      const int64_t size = std::min(kBlockNodes, task_.frontier_end - at), begin = places.size();
      ListRange lists[kBlockNodes];
      int64_t most = 0;
      for (int64_t i = 0; i < size; ++i) lists[i] = checked_list(*task_.relation, node_at(at + i));
      if constexpr (kDisjoint) keep_drawable(task_, task_.destinations->data() + at, size, lists);
      for (int64_t i = 0; i < size; ++i) most += Draw::most(lists[i].degree, task_.fanout);
      prefetch_lists(at + size, std::min(at + size + kBlockNodes, task_.frontier_end));
      places.make_room(most);
      taken.make_room(size);
      int64_t* out = places.data() + begin;
      int32_t* const counts = taken.data() + taken.size();
      for (int64_t i = 0; i < size; ++i) {
        counts[i] = static_cast<int32_t>(draw_(lists[i].begin, lists[i].degree, task_.fanout, stream_of(at + i), out));
        out += counts[i];
      }
      places.set_size(out - places.data());
      taken.set_size(taken.size() + size);
      chosen(begin, places.size(), at);
    }
    return std::min(at, task_.frontier_end);
  }

  /// Turns the ids of nodes [first, last) into keys, where nodes are keys.
  void add_instances(int64_t first, int64_t last, const int32_t* taken, int64_t* ids) const {
    if constexpr (kDisjoint) {
      for (int64_t i = first; i < last; ++i, ++taken) {
        const int64_t key = (*task_.destinations)[i], instance = key - task_.node_of(key);
        for (const int64_t* const end = ids + *taken; ids < end; ++ids) *ids |= instance;
      }
    }
  }

  /// Looks ids up among the known nodes, adds the new ones, writes the edges of nodes [first, last).
  void look_up(int64_t first, int64_t last, const int64_t* places, const int64_t* ids, int64_t total,
               const int32_t* taken) {
    NodeTable& sources = *task_.sources;
    check_room(sources.size(), total);
    sources.make_room(total);
    for (int64_t j = 0; j < std::min(kAhead, total); ++j) sources.prefetch(ids[j]);
    if (task_.edges == nullptr) {
      for (int64_t j = 0; j < total; ++j) {
        if (j + kAhead < total) sources.prefetch(ids[j + kAhead]);
        sources.insert(ids[j]);
      }
      return;
    }
    SampledEdges& edges = *task_.edges;
    const int64_t at = edges.extend(total, task_.want_positions, false);
    int32_t* const src = edges.src.data() + at;
    for (int64_t j = 0; j < total; ++j) {
      if (j + kAhead < total) sources.prefetch(ids[j + kAhead]);
      src[j] = sources.insert(ids[j]);
    }
    int32_t* dst = edges.dst.data() + at;
    for (int64_t i = first; i < last; ++i) dst = std::fill_n(dst, taken[i - first], static_cast<int32_t>(i));
    if (task_.want_positions) std::copy_n(places, total, edges.positions.data() + at);
  }

 private:
  static constexpr int64_t kBlockNodes = ListSearch::kMost;
  static constexpr int64_t kPieceEdges = 16384;
  static constexpr int64_t kAhead = 24;  // ids between prefetching a slot of the table and looking at it

  int64_t node_at(int64_t i) const {
    const int64_t key = (*task_.destinations)[i];
    return kDisjoint ? task_.node_of(key) : key;
  }

  Stream stream_of(int64_t i) const {
    uint64_t group = task_.stream;
    if constexpr (kDisjoint)
      group = fold_word(group, static_cast<uint64_t>(task_.instance_of((*task_.destinations)[i])));
    return {group, task_.destination_keys.key_of(node_at(i))};
  }

  void prefetch_lists(int64_t first, int64_t last) const {
    for (int64_t i = first; i < last; ++i) {
      const int64_t node = node_at(i);
      __builtin_prefetch(task_.relation->indptr + node);
      __builtin_prefetch(task_.relation->indptr + node + 1);
      task_.destination_keys.prefetch(node);
    }
  }

  /// Where ids go: to their places, unless these are wanted.
  GrowingArray<int64_t>& ids() { return task_.want_positions ? scratch_.ids : scratch_.places; }

  /// Chooses places of a piece; the ids there are read a block behind, once they have arrived in the cache.
  template <typename Index>
  int64_t choose_and_read(int64_t first, const Index* indices) {
    int64_t unread = 0, unread_node = first;  // of the block before: its first place and node
    const int64_t last = choose(first, kPieceEdges, [&](int64_t begin, int64_t end, int64_t node) {
      for (int64_t j = begin; j < end; ++j)
        __builtin_prefetch(indices + scratch_.places[j], 0, 2);  // 2: L2, as a block outgrows L1
      read_ids(indices, unread, begin, unread_node, node, first);
      unread = begin;
      unread_node = node;
    });
    read_ids(indices, unread, scratch_.places.size(), unread_node, last, first);
    return last;
  }

  /// Reads the ids at places [begin, end), of nodes [node, node_end) of a piece from `first` on.
  template <typename Index>
  void read_ids(const Index* indices, int64_t begin, int64_t end, int64_t node, int64_t node_end, int64_t first) {
    GrowingArray<int64_t>& found = ids();
    if (task_.want_positions) {
      found.set_size(begin);
      found.make_room(end - begin);
      found.set_size(end);
    }
    const int64_t* const places = scratch_.places.data();
    for (int64_t j = begin; j < end; ++j) {
      const auto id = static_cast<int64_t>(indices[places[j]]);
      if (static_cast<uint64_t>(id) >= static_cast<uint64_t>(task_.num_src)) [[unlikely]]
        throw_bad_index(places[j], id, task_.num_src);
      found[j] = id;
    }
    add_instances(node, node_end, scratch_.taken.data() + (node - first), found.data() + begin);
  }

  const HopTask& task_;
  Draw& draw_;
  HopScratch& scratch_;
};

/// One hop over one relation, where each node is a key with its instance. Compiled apart from the sampler's other rules,
/// which stay as fast as without it.
template <typename Draw>
void run_disjoint_hop(const HopTask& task, Draw& draw, HopScratch& scratch);

/// Writes all edges between known nodes of one instance that are visible to it: by destination, in the order of its
/// list. Reads the lists of all destinations. A batch that is not disjoint is one instance.
void write_induced_edges(const HopTask& task);

/// Writes the edges of destination `i` from known nodes, of the entries at [begin, end) of `indices`; `ids` stand there.
template <typename Index>
void write_known_edges(const HopTask& task, int64_t i, int64_t begin, int64_t end, const Index* ids);

}  // namespace tiering
