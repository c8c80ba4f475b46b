// One hop over one relation: the kernel of neighbour sampling. Lists with times ascend in time: an instance of a disjoint
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

/// Cuts lists to the entries that the instances of their keys see.
template <typename Time>
void keep_visible(const HopTask& task, const int64_t* keys, int64_t size, ListRange* lists) {
  const TimeRule& rule = task.config->time;
  const auto window = std::bit_cast<Time>(rule.window);
  Time now[ListSearch::kMost];
  ListSearch search(task.relation->times);  // of the ends of lists, then, in a window, of their begins
  for (int64_t i = 0; i < size; ++i) {
    now[i] = std::bit_cast<Time>(task.clocks[task.instance_of(keys[i])]);
    search.add(lists[i]);
  }
  for (int64_t i = 0; i < size && rule.window != -1; ++i) search.add(lists[i]);
  search.run([&](int64_t i, int64_t word) -> bool {
    const auto time = std::bit_cast<Time>(word);
    if (i < size) return time <= now[i];
    const Time seed_time = now[i - size];
    if constexpr (std::is_same_v<Time, double>) return (time < seed_time) & (seed_time - time > window);
    // The difference of integers fits into 64 bits where it counts.
    const uint64_t age = static_cast<uint64_t>(seed_time) - static_cast<uint64_t>(time);
    return (time < seed_time) & (age > static_cast<uint64_t>(window));
  });
  for (int64_t i = 0; i < size; ++i) {
    const int64_t begin = rule.window == -1 ? lists[i].begin : search.found(size + i);
    lists[i] = {begin, search.found(i) - begin};
  }
}

/// Cuts up to ListSearch::kMost lists to the entries that the instances of their keys see.
inline void keep_visible(const HopTask& task, const int64_t* keys, int64_t size, ListRange* lists) {
  if (task.relation->times.empty()) return;
  if (task.config->time.real)
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

/// A hop is three steps - choose places, read the ids there, look the ids up - each of which misses the cache at every
/// element. So the frontier is cut into blocks, and every step prefetches what the next one of its block reads.
/// `kDisjoint`: nodes are keys with their instance, which also says what is visible.
template <typename Draw, bool kDisjoint>
class RelationHop {
 public:
  RelationHop(const HopTask& task, Draw& draw, GrowingArray<int64_t>* scratch) : task_(task), draw_(draw) {
    for (int i = 0; i < kBlocks; ++i) blocks_[i].places = &scratch[i];
  }

  void run() {
    const int64_t size = task_.frontier_end - task_.frontier_begin;
    const int64_t blocks = (size + kBlockNodes - 1) / kBlockNodes;
    prefetch_lists(0);
    for (int64_t b = 0; b < blocks + 2; ++b) {
      if (b < blocks) choose(b, blocks_[b % kBlocks]);
      if (b >= 1 && b - 1 < blocks) read_ids(blocks_[(b - 1) % kBlocks]);
      if (b >= 2) look_up(blocks_[(b - 2) % kBlocks]);
    }
  }

 private:
  static constexpr int64_t kBlockNodes = kDisjoint ? ListSearch::kMost : 16;
  static constexpr int kBlocks = 3;

  struct Block {
    GrowingArray<int64_t>* places = nullptr;  // places in indices, then two parts: places, ids
    int64_t total = 0;                        // edges of the block
    int64_t first = 0, size = 0;              // its nodes, as places in the destination list
    int64_t taken[kBlockNodes] = {};          // edges per node
  };

  int64_t node_at(int64_t i) const {
    const int64_t key = task_.destinations->nodes()[i];
    return kDisjoint ? task_.node_of(key) : key;
  }

  Stream stream_of(int64_t i) const {
    uint64_t group = task_.stream;
    if constexpr (kDisjoint)
      group = fold_word(group, static_cast<uint64_t>(task_.instance_of(task_.destinations->nodes()[i])));
    return {group, task_.destination_keys.key_of(node_at(i))};
  }

  std::pair<int64_t, int64_t> block_range(int64_t b) const {
    const int64_t first = task_.frontier_begin + b * kBlockNodes;
    return {std::min(first, task_.frontier_end), std::min(first + kBlockNodes, task_.frontier_end)};
  }

  void prefetch_lists(int64_t b) const {
    const auto [first, last] = block_range(b);
    for (int64_t i = first; i < last; ++i) {
      const int64_t node = node_at(i);
      __builtin_prefetch(task_.relation->indptr + node);
      __builtin_prefetch(task_.relation->indptr + node + 1);
      task_.destination_keys.prefetch(node);
    }
  }

  /// Step 1: choose which places of the block's neighbour lists are taken.
  void choose(int64_t b, Block& block) {
    const auto [first, last] = block_range(b);
    const IdSpan indices = task_.relation->indices;
    ListRange lists[kBlockNodes];
    block.first = first;
    block.size = last - first;
    int64_t most = 0;
    for (int64_t i = 0; i < block.size; ++i) lists[i] = checked_list(*task_.relation, node_at(first + i));
    if constexpr (kDisjoint) keep_drawable(task_, task_.destinations->nodes().data() + first, block.size, lists);
    for (int64_t i = 0; i < block.size; ++i) most += Draw::most(lists[i].degree, task_.fanout);
    prefetch_lists(b + 1);
    block.places->resize(2 * most);
    int64_t* out = block.places->data();
    for (int64_t i = 0; i < block.size; ++i) {
      block.taken[i] = draw_(lists[i].begin, lists[i].degree, task_.fanout, stream_of(first + i), out);
      for (int64_t j = 0; j < block.taken[i]; ++j)
        __builtin_prefetch(indices.at(out[j]), 0, 2);  // 2: L2, as a block outgrows L1
      out += block.taken[i];
    }
    block.total = out - block.places->data();
  }

  /// Step 2: read the neighbours' ids.
  void read_ids(Block& block) {
    task_.relation->indices.visit([&](const auto& indices) { read_ids(indices.data(), block); });
  }

  template <typename Index>
  void read_ids(const Index* indices, Block& block) {
    const int64_t* places = block.places->data();
    int64_t* ids = block.places->data() + block.total;
    uint64_t highest = 0;
    for (int64_t j = 0; j < block.total; ++j) {
      const auto id = static_cast<int64_t>(indices[places[j]]);
      highest = std::max(highest, static_cast<uint64_t>(id));
      ids[j] = id;
      if constexpr (!kDisjoint) task_.sources->prefetch(id);
    }
    if (highest >= static_cast<uint64_t>(task_.num_src) && block.total > 0) bad_index(places, ids, block.total);
    if constexpr (kDisjoint) add_instances(block, ids);
  }

  /// Turns the ids of a block into keys.
  void add_instances(const Block& block, int64_t* ids) const {
    for (int64_t i = 0; i < block.size; ++i) {
      const int64_t key = task_.destinations->nodes()[block.first + i], instance = key - task_.node_of(key);
      for (const int64_t* const end = ids + block.taken[i]; ids < end; ++ids) task_.sources->prefetch(*ids |= instance);
    }
  }

  /// Step 3: look the ids up among the known nodes, add the new ones, write the edges.
  void look_up(Block& block) {
    const int64_t* places = block.places->data();
    const int64_t* ids = block.places->data() + block.total;
    check_room(task_.sources->size(), block.total);
    task_.sources->make_room(block.total);
    if (task_.edges == nullptr) {
      for (int64_t j = 0; j < block.total; ++j) task_.sources->insert(ids[j]);
      return;
    }
    SampledEdges& edges = *task_.edges;
    const int64_t at = edges.extend(block.total, task_.want_positions, false);
    int32_t* const src = edges.src.data() + at;
    for (int64_t j = 0; j < block.total; ++j) src[j] = task_.sources->insert(ids[j]);
    int32_t* dst = edges.dst.data() + at;
    for (int64_t i = 0; i < block.size; ++i)
      dst = std::fill_n(dst, block.taken[i], static_cast<int32_t>(block.first + i));
    if (task_.want_positions) std::copy_n(places, block.total, edges.positions.data() + at);
  }

  [[noreturn]] void bad_index(const int64_t* places, const int64_t* ids, int64_t total) const {
    int64_t j = 0;
    while (j + 1 < total && ids[j] >= 0 && ids[j] < task_.num_src) ++j;
    throw_bad_index(places[j], ids[j], task_.num_src);
  }

  const HopTask& task_;
  Draw& draw_;
  Block blocks_[kBlocks];
};

/// One hop over one relation, where each node is a key with its instance. Compiled apart from the sampler's other rules,
/// which stay as fast as without it.
template <typename Draw>
void run_disjoint_hop(const HopTask& task, Draw& draw, GrowingArray<int64_t>* scratch);

/// Writes all edges between known nodes of one instance that are visible to it: by destination, in the order of its
/// list. Reads the lists of all destinations. A batch that is not disjoint is one instance.
void write_induced_edges(const HopTask& task);

}  // namespace tiering
