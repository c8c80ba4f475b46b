// The draws themselves, one list at a time: pure functions of the random numbers, the same on CPU and GPU, so that both
// take the same places. They allocate nothing: working memory is passed in.
#pragma once

#include "tiering/sampling/random.hpp"

namespace tiering {

/// How the frontier chooses. Each node from its own list, the first three: uniform without replacement, uniform with
/// replacement, or without replacement in proportion to edge weights (relation_hop.hpp); by random walks
/// (walk_hop.hpp); or one draw for the whole frontier (layer_hop.hpp).
enum class Rule { uniform, replacement, weighted, pinsage, ladies };
inline constexpr size_t kNumRules = 5, kNumListRules = 3;

/// Neighbors that a draw without replacement takes from a list of `degree` when `fanout` are asked for (-1: all).
TIERING_SHARED constexpr int64_t most_distinct(int64_t degree, int64_t fanout) {
  return fanout < 0 || degree < fanout ? degree : fanout;
}

/// Neighbors that a draw with replacement takes; -1 takes the list once.
TIERING_SHARED constexpr int64_t most_replaced(int64_t degree, int64_t fanout) {
  if (fanout < 0) return degree;
  return degree > 0 ? fanout : 0;
}

/// Writes the places of a whole list, in its order.
TIERING_SHARED constexpr int64_t take_all(int64_t first, int64_t degree, int64_t* out) {
  for (int64_t i = 0; i < degree; ++i) out[i] = first + i;
  return degree;
}

/// Floyd's algorithm (Bentley & Floyd, CACM 30(9), 1987) for `taken` < degree places; a place is looked for among the
/// earlier ones, which for few of them is faster than a set.
TIERING_SHARED constexpr void draw_distinct(int64_t first, int64_t degree, int64_t taken, Stream random, int64_t* out) {
  for (int64_t i = 0; i < taken; ++i) {
    const int64_t last = degree - taken + i;
    const int64_t place = first + static_cast<int64_t>(random.below(static_cast<uint64_t>(last) + 1));
    bool seen = false;
    for (int64_t j = 0; j < i; ++j) seen |= out[j] == place;
    out[i] = seen ? first + last : place;
  }
}

/// The place that draw_distinct writes at `number`, by itself, so that every draw may be a thread of its own. It draws the
/// numbers before it again instead of looking at their places: what was drawn before is taken, and so is the last place
/// of an earlier step whose own number was taken then.
TIERING_SHARED constexpr int64_t distinct_place(int64_t first, int64_t degree, int64_t taken, Stream random,
                                                int64_t number) {
  const int64_t begin = degree - taken;  // the last place of step j is begin + j
  const auto drawn = [&](int64_t step) {
    Stream of_step = random;
    of_step.skip(static_cast<uint64_t>(step));
    return static_cast<int64_t>(of_step.below(static_cast<uint64_t>(begin + step) + 1));
  };
  const int64_t place = drawn(number);
  bool seen = false;
  for (int64_t wanted = place, steps = number;;) {
    for (int64_t step = 0; step < steps && !seen; ++step) seen = drawn(step) == wanted;
    const int64_t of_last = wanted - begin;  // the step whose last place it is
    if (seen || of_last < 0 || of_last >= steps) break;
    wanted = drawn(of_last);
    steps = of_last;
  }
  return first + (seen ? begin + number : place);
}

/// `taken` independent places.
TIERING_SHARED constexpr void draw_replaced(int64_t first, int64_t degree, int64_t taken, Stream random, int64_t* out) {
  for (int64_t i = 0; i < taken; ++i)
    out[i] = first + static_cast<int64_t>(random.below(static_cast<uint64_t>(degree)));
}

/// A list's weights as running sums in whole numbers (cumulative_weights), from its first place on.
struct ListWeights {
  const uint64_t* sums;

  TIERING_SHARED constexpr uint64_t before(int64_t place) const { return place > 0 ? sums[place - 1] : 0; }
  TIERING_SHARED constexpr uint64_t of(int64_t place) const { return sums[place] - before(place); }

  /// Return the place that `point` lies on: the first whose sum is larger; `degree` if there is none. Not by
  /// std::upper_bound: nvcc compiles the std::advance within it to nothing.
  TIERING_SHARED constexpr int64_t find(uint64_t point, int64_t degree) const {
    int64_t low = 0, high = degree;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (sums[middle] <= point)
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  }
};

/// Places of positive weight, in order; returns how many. `out` has room for `degree`.
TIERING_SHARED constexpr int64_t take_positive(int64_t first, int64_t degree, ListWeights weights, int64_t* out) {
  int64_t count = 0;
  for (int64_t place = 0; place < degree; ++place) {  // no branch: none could be predicted
    out[count] = first + place;
    count += weights.of(place) > 0;
  }
  return count;
}

/// Successive draws in proportion to what is left, until `fanout` are taken or no weight is left; returns how many.
/// `taken`: memory for `fanout` places, kept ascending.
TIERING_SHARED constexpr int64_t draw_weighted(int64_t first, int64_t degree, int64_t fanout, ListWeights weights,
                                               Stream random, int64_t* out, int64_t* taken) {
  uint64_t left = weights.sums[degree - 1];
  int64_t count = 0;
  for (; count < fanout && left > 0; ++count) {
    uint64_t point = random.below(left);  // counts only what is not taken: moved to where it lies on the whole list
    for (int64_t i = 0; i < count && point >= weights.before(taken[i]); ++i) point += weights.of(taken[i]);
    const int64_t place = weights.find(point, degree);
    left -= weights.of(place);
    int64_t at = count;
    for (; at > 0 && taken[at - 1] > place; --at) taken[at] = taken[at - 1];
    taken[at] = place;
    out[count] = first + place;
  }
  return count;
}

}  // namespace tiering
