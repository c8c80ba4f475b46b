// One hop of random walks with restart (PinSAGE): the most visited nodes become the neighbors.
#pragma once

#include "hop_task.hpp"

namespace tiering {

/// A visited node: how often, its key (the original id) and its id.
struct Visited {
  int64_t count;
  uint64_t key;
  int64_t id;
};

/// How often each node was visited, and the k most visited of them: for lists of some hundred ids at a time. The
/// distinct ids lie densely in order of their first visit; a hash table of their positions stays in L1.
class VisitCounter {
 public:
  /// Writes the `k` (-1: all) most visited of ids[0 .. size) to top(), most visits first. Equal counts go by lower key.
  void run(const int64_t* ids, int64_t size, int64_t k, const IdSpan& keys) {
    start(size);
    for (int64_t i = 0; i < size; ++i) ++at_least_[++counts_[place_of(ids[i])]];
    select(k, keys);
  }
  const GrowingArray<Visited>& top() const { return top_; }

 private:
  void start(int64_t size) {
    int64_t slots = 64;
    while (slots < 2 * size) slots *= 2;
    slots_.resize(slots);
    std::memset(slots_.data(), 0xff, static_cast<size_t>(slots) * sizeof(int32_t));
    shift_ = 64 - __builtin_ctzll(static_cast<uint64_t>(slots));
    ids_.resize(size);
    counts_.resize(size);
    at_least_.resize(size + 2);
    std::memset(at_least_.data(), 0, static_cast<size_t>(size + 2) * sizeof(int32_t));
    distinct_ = 0;
  }

  /// Place of `id` among the distinct ids; a new one comes last.
  int32_t place_of(int64_t id) {
    const uint64_t mask = static_cast<uint64_t>(slots_.size()) - 1;
    uint64_t at = (static_cast<uint64_t>(id) * kGolden) >> shift_;
    for (;; at = (at + 1) & mask) {
      int32_t& slot = slots_[static_cast<int64_t>(at)];
      if (slot < 0) {
        slot = distinct_;
        ids_[distinct_] = id;
        counts_[distinct_] = 0;
        return distinct_++;
      }
      if (ids_[slot] == id) return slot;
    }
  }

  void select(int64_t k, const IdSpan& keys) {
    const bool all = k < 0 || k >= distinct_;
    int64_t least = 1;  // visits that the top k may still have
    while (!all && at_least_[least + 1] >= k) ++least;
    top_.resize(distinct_);
    int64_t size = 0;
    for (int32_t i = 0; i < distinct_; ++i) {
      top_[size] = {counts_[i], static_cast<uint64_t>(ids_[i]), ids_[i]};
      size += counts_[i] >= least;
    }
    for (int64_t i = 0; keys.data != nullptr && i < size; ++i) keys.prefetch(top_[i].id);
    for (int64_t i = 0; keys.data != nullptr && i < size; ++i) top_[i].key = keys.key_of(top_[i].id);
    const auto before = [](const Visited& a, const Visited& b) {
      return a.count != b.count ? a.count > b.count : a.key < b.key;
    };
    Visited* const first = top_.data();
    if (!all && size > k) {
      std::nth_element(first, first + k, first + size, before);
      size = k;
    }
    std::sort(first, first + size, before);
    top_.set_size(size);
  }

  GrowingArray<int32_t> slots_;     // place among the distinct ids, -1 = free
  GrowingArray<int64_t> ids_;       // distinct ids
  GrowingArray<int32_t> counts_;    // visits of each
  GrowingArray<int32_t> at_least_;  // [c]: ids with at least c visits
  GrowingArray<Visited> top_;
  int32_t distinct_ = 0;
  int shift_ = 58;
};

/// The walks of some frontier nodes advance together: every step is a pass that reads what the pass before it has
/// prefetched. The walks stay in order, and each has random numbers of its own, so the result is that of one at a time.
/// Memory: some 40 bytes per walk of a block, nothing per graph node. Reused from hop to hop.
class WalkHop {
 public:
  void run(const HopTask& task);

 private:
  static constexpr int64_t kBlockWalks = 512;

  void start_block(int64_t first, int64_t last);
  void prefetch_starts(int64_t first, int64_t last) const;
  void walk();
  void choose(size_t relation);
  template <typename Index>
  void follow(const RelationView& relation, const Index* indices);
  void arrive(bool last_round);
  void prefetch_lists(size_t relation) const;
  void count_read(size_t relation, int64_t node, int64_t times) const;
  void select();
  void emit();

  const HopTask* task_ = nullptr;
  int64_t most_visits_ = 0;  // per frontier node

  // The block's frontier nodes: places [first_, first_ + nodes_) of the destination list.
  int64_t first_ = 0, nodes_ = 0;
  GrowingArray<int64_t> visits_;      // most_visits_ per node
  GrowingArray<int64_t> num_visits_;  // per node

  // Walks under way.
  int64_t live_ = 0;
  GrowingArray<int64_t> at_;  // node; between choose() and follow() the place in indices
  GrowingArray<int32_t> owner_;
  GrowingArray<Stream> random_;

  // Chosen neighbors of a block that wait for being looked up.
  struct Chosen {
    GrowingArray<int64_t> ids, counts;
    GrowingArray<int64_t> taken;  // per node
    int64_t first = 0;
  } chosen_;
  VisitCounter counter_;
};

}  // namespace tiering
