// Which places of a neighbour list are taken. A draw is a small class: most() bounds what it takes from a list,
// and the operator writes the places and returns how many they are. Places, not ids, are drawn: parallel edges
// are separate neighbours. All arithmetic is in whole numbers, so any machine takes the same places.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tiering/sampling/growing_array.hpp"
#include "tiering/sampling/random.hpp"

namespace tiering {

/// Writes the places of a whole list, in its order.
inline int64_t take_all(int64_t first, int64_t degree, int64_t* out) {
  for (int64_t i = 0; i < degree; ++i) out[i] = first + i;
  return degree;
}

/// Uniform draw without replacement by Floyd's algorithm (Bentley & Floyd, CACM 30(9), 1987): one step per
/// neighbour, every subset equally likely.
class UniformDraw {
 public:
  /// Neighbours taken from a list of `degree` when `fanout` are asked for (-1: all).
  static int64_t most(int64_t degree, int64_t fanout) {
    return fanout < 0 || degree < fanout ? degree : fanout;
  }

  /// Writes first + place for most(degree, fanout) places. A list that is taken whole comes in its own order.
  int64_t operator()(int64_t first, int64_t degree, int64_t fanout, Stream random, int64_t* out) {
    const int64_t taken = most(degree, fanout);
    if (taken == degree) {
      take_all(first, degree, out);
    } else if (taken <= kFew) {
      draw_few(first, degree, taken, random, out);
    } else {
      draw_many(first, degree, taken, random, out);
    }
    return taken;
  }

 private:
  static constexpr int64_t kFew = 48;  // up to here comparing with all earlier draws beats hashing

  static void draw_few(int64_t first, int64_t degree, int64_t taken, Stream random, int64_t* out) {
    for (int64_t i = 0; i < taken; ++i) {
      const int64_t last = degree - taken + i;
      const int64_t place = first + static_cast<int64_t>(random.below(static_cast<uint64_t>(last) + 1));
      bool seen = false;
      for (int64_t j = 0; j < i; ++j) seen |= out[j] == place;
      out[i] = seen ? first + last : place;
    }
  }

  void draw_many(int64_t first, int64_t degree, int64_t taken, Stream random, int64_t* out) {
    start_set(taken);
    for (int64_t i = 0; i < taken; ++i) {
      const int64_t last = degree - taken + i;
      const int64_t place = static_cast<int64_t>(random.below(static_cast<uint64_t>(last) + 1));
      const bool is_new = add(place);
      if (!is_new) add(last);
      out[i] = first + (is_new ? place : last);
    }
  }

  void start_set(int64_t taken) {
    int64_t slots = 256;
    while (slots < 2 * taken) slots *= 2;
    set_.resize(slots);
    for (int64_t i = 0; i < slots; ++i) set_[i] = -1;
  }
  bool add(int64_t place) {
    const int64_t mask = set_.size() - 1;
    int64_t at = static_cast<int64_t>(mix64(static_cast<uint64_t>(place))) & mask;
    while (set_[at] != -1 && set_[at] != place) at = (at + 1) & mask;
    const bool is_new = set_[at] == -1;
    set_[at] = place;
    return is_new;
  }

  GrowingArray<int64_t> set_;
};

/// `fanout` independent uniform draws: the same neighbour may come several times. -1 takes the list once.
class ReplacementDraw {
 public:
  static int64_t most(int64_t degree, int64_t fanout) {
    if (fanout < 0) return degree;
    return degree > 0 ? fanout : 0;
  }

  int64_t operator()(int64_t first, int64_t degree, int64_t fanout, Stream random, int64_t* out) {
    if (fanout < 0) return take_all(first, degree, out);
    const int64_t taken = most(degree, fanout);
    for (int64_t i = 0; i < taken; ++i)
      out[i] = first + static_cast<int64_t>(random.below(static_cast<uint64_t>(degree)));
    return taken;
  }
};

/// Successive draws without replacement, each proportional to the weight among what is left. Edges of weight 0
/// are never taken; a list with no more positive edges than the fanout gives them all.
/// Per draw: one search in the sums, and one look at each place taken before (so very large fanouts are slow).
class WeightedDraw {
 public:
  /// Sums of weights, per relation as CumulativeWeights makes them; must be set before the first draw.
  void use(const uint64_t* sums) { sums_ = sums; }

  static int64_t most(int64_t degree, int64_t fanout) { return UniformDraw::most(degree, fanout); }

  int64_t operator()(int64_t first, int64_t degree, int64_t fanout, Stream random, int64_t* out) {
    if (fanout < 0 || degree <= fanout) return take_positive(first, degree, out);
    uint64_t left = sums_[first + degree - 1];
    taken_.resize(fanout);
    int64_t count = 0;
    for (; count < fanout && left > 0; ++count) {
      const int64_t place = find(first, degree, skip_taken(first, count, random.below(left)));
      left -= weight(first, place);
      insert(place, count);
      out[count] = place;
    }
    return count;
  }

 private:
  uint64_t before(int64_t first, int64_t place) const { return place > first ? sums_[place - 1] : 0; }
  uint64_t weight(int64_t first, int64_t place) const { return sums_[place] - before(first, place); }

  int64_t take_positive(int64_t first, int64_t degree, int64_t* out) const {
    int64_t count = 0;
    for (int64_t place = first; place < first + degree; ++place) {
      out[count] = place;
      count += weight(first, place) > 0;
    }
    return count;
  }

  /// Moves `point`, which counts only what is not taken, to where it lies on the whole list.
  uint64_t skip_taken(int64_t first, int64_t count, uint64_t point) const {
    for (int64_t i = 0; i < count && point >= before(first, taken_[i]); ++i)
      point += weight(first, taken_[i]);
    return point;
  }

  /// The place whose stretch of the sums holds `point`.
  int64_t find(int64_t first, int64_t degree, uint64_t point) const {
    return std::upper_bound(sums_ + first, sums_ + first + degree, point) - sums_;
  }

  /// Keeps the taken places ascending.
  void insert(int64_t place, int64_t count) {
    int64_t at = count;
    for (; at > 0 && taken_[at - 1] > place; --at) taken_[at] = taken_[at - 1];
    taken_[at] = place;
  }

  const uint64_t* sums_ = nullptr;
  GrowingArray<int64_t> taken_;
};

}  // namespace tiering
