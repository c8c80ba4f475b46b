// Time: which entries of lists that ascend in time the instances of a disjoint batch see.
#pragma once

#include <bit>

#include "hop_task.hpp"

namespace tiering {

/// Searches lists side by side, so that the memory accesses of one overlap those of the others.
class ListSearch {
 public:
  static constexpr int64_t kMost = 32;  ///< lists at a time

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
  int64_t count_ = 0, first_[kMost], size_[kMost];
};

/// Cuts lists to the entries that the instances of their keys see.
template <typename Time>
void keep_visible(const HopTask& task, const int64_t* keys, int64_t size, ListRange* lists) {
  const TimeRule& rule = task.config->time;
  const auto seed_time = [&](int64_t i) { return std::bit_cast<Time>(task.clocks[task.instance_of(keys[i])]); };
  Time now[ListSearch::kMost];
  ListSearch ends(task.relation->times), begins(task.relation->times);
  for (int64_t i = 0; i < size; ++i) {
    now[i] = seed_time(i);
    ends.add(lists[i]);
  }
  ends.run([&](int64_t i, int64_t word) { return std::bit_cast<Time>(word) <= now[i]; });
  for (int64_t i = 0; i < size; ++i) lists[i].degree = ends.found(i) - lists[i].begin;
  if (rule.window == -1) return;
  const auto window = std::bit_cast<Time>(rule.window);
  for (int64_t i = 0; i < size; ++i) begins.add(lists[i]);
  begins.run([&](int64_t i, int64_t word) {
    const auto time = std::bit_cast<Time>(word);  // <= now, so that the difference of integers fits into 64 bits
    if constexpr (std::is_same_v<Time, double>) return time != now[i] && now[i] - time > window;
    return static_cast<uint64_t>(now[i]) - static_cast<uint64_t>(time) > static_cast<uint64_t>(window);
  });
  for (int64_t i = 0; i < size; ++i) lists[i] = {begins.found(i), ends.found(i) - begins.found(i)};
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
