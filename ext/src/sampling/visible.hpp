// Time: which entries of lists that ascend in time the instances of a disjoint batch see.
#pragma once

#include <bit>

#include "hop_task.hpp"

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

}  // namespace tiering
