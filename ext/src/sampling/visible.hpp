// Time: which entries of lists that ascend in time the instances of a disjoint batch see.
#pragma once

#include <bit>

#include "hop_task.hpp"

namespace tiering {

/// The first of `size` entries from `first` on for which `before` no longer holds. Its steps depend on the size alone,
/// and none is a branch that could be mispredicted.
template <typename Before>
int64_t partition_point(int64_t first, int64_t size, Before before) {
  for (; size > 1; size -= size / 2) first += before(first + size / 2 - 1) ? size / 2 : 0;
  return first + (size == 1 && before(first));
}

/// The entries of a list that an instance whose seed has the time `clock` sees.
template <typename Time>
ListRange visible_range(const TimeRule& rule, std::span<const int64_t> times, ListRange list, int64_t clock) {
  const auto now = std::bit_cast<Time>(clock);
  const auto time_at = [&](int64_t i) { return std::bit_cast<Time>(times[static_cast<size_t>(i)]); };
  const int64_t end = partition_point(list.begin, list.degree, [&](int64_t i) { return time_at(i) <= now; });
  if (rule.window == -1) return {list.begin, end - list.begin};
  const auto window = std::bit_cast<Time>(rule.window);
  const auto too_old = [&](int64_t i) {
    const Time time = time_at(i);  // <= now, so that the difference of integers fits into 64 bits
    if constexpr (std::is_same_v<Time, double>) return time != now && now - time > window;
    return static_cast<uint64_t>(now) - static_cast<uint64_t>(time) > static_cast<uint64_t>(window);
  };
  const int64_t begin = partition_point(list.begin, end - list.begin, too_old);
  return {begin, end - begin};
}

/// The entries of a list that the instance of a key sees.
inline ListRange visible_range(const HopTask& task, int64_t key, ListRange list) {
  const TimeRule& rule = task.config->time;
  const auto times = task.relation->times;
  if (times.empty()) return list;
  const int64_t clock = task.clocks[task.instance_of(key)];
  return rule.real ? visible_range<double>(rule, times, list, clock) : visible_range<int64_t>(rule, times, list, clock);
}

/// Cuts the lists of the destinations from `first` on to what their draws may take.
inline void keep_visible(const HopTask& task, int64_t first, int64_t size, ListRange* lists) {
  if (task.relation->times.empty()) return;
  for (int64_t i = 0; i < size; ++i) {
    ListRange seen = visible_range(task, task.destinations->nodes()[first + i], lists[i]);
    if (task.config->time.last && task.fanout >= 0) {
      const int64_t newest = std::min(seen.degree, task.fanout);
      seen = {seen.begin + seen.degree - newest, newest};
    }
    lists[i] = seen;
  }
}

}  // namespace tiering
