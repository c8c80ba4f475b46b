// How often each node was visited, and the k most visited of them: for lists of some hundred ids at a time.
//
// The distinct ids lie densely in order of their first visit; a hash table of their 32-bit positions stays
// in L1 (4 KB for 400 visits). While counting, at_least_[c] keeps how many ids have c visits or more, so that
// the cut for the top k is known at once and only ids at the cut are compared.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "tiering/sampling/growing_array.hpp"
#include "tiering/sampling/random.hpp"
#include "tiering/sampling/sampler.hpp"

namespace tiering {

/// A visited node: how often, its key (the original id) and its id.
struct Visited {
  int64_t count;
  uint64_t key;
  int64_t id;
};

class VisitCounter {
 public:
  /// Writes the `k` (-1: all) most visited of ids[0 .. size) to top(), most visits first. Equal counts go by lower key.
  void run(const int64_t* ids, int64_t size, int64_t k, const IdArray& keys) {
    count(ids, size);
    select(k, keys);
  }
  const GrowingArray<Visited>& top() const { return top_; }

 private:
  void count(const int64_t* ids, int64_t size) {
    start(size);
    for (int64_t i = 0; i < size; ++i) {
      const int32_t at = place_of(ids[i]);
      ++at_least_[++counts_[at]];
    }
  }

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

  /// Smallest number of visits that the top k may still have; 1 where all are taken.
  int64_t cut(int64_t k) const {
    int64_t visits = 1;
    while (at_least_[visits + 1] >= k) ++visits;
    return visits;
  }

  void select(int64_t k, const IdArray& keys) {
    const bool all = k < 0 || k >= distinct_;
    const int64_t least = all ? 1 : cut(k);
    top_.resize(distinct_);
    int64_t size = 0;
    for (int32_t i = 0; i < distinct_; ++i) {
      top_[size] = {counts_[i], static_cast<uint64_t>(ids_[i]), ids_[i]};
      size += counts_[i] >= least;
    }
    if (!keys.absent()) read_keys(keys, size);
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

  void read_keys(const IdArray& keys, int64_t size) {
    for (int64_t i = 0; i < size; ++i) keys.prefetch(top_[i].id);
    for (int64_t i = 0; i < size; ++i) top_[i].key = keys.key_of(top_[i].id);
  }

  GrowingArray<int32_t> slots_;     // place among the distinct ids, -1 = free
  GrowingArray<int64_t> ids_;       // distinct ids
  GrowingArray<int32_t> counts_;    // visits of each
  GrowingArray<int32_t> at_least_;  // [c]: ids with at least c visits
  GrowingArray<Visited> top_;
  int32_t distinct_ = 0;
  int shift_ = 58;
};

}  // namespace tiering
