// Which places of a neighbor list are taken. A draw is a small class: most() bounds what it takes from a list,
// and the operator writes the places and returns how many they are. Places, not ids, are drawn: parallel edges
// are separate neighbors. All arithmetic is in whole numbers, so any machine takes the same places.
#pragma once

#include "tiering/device/draws.hpp"
#include "tiering/sampling/growing_array.hpp"

namespace tiering {

/// Uniform draw without replacement by Floyd's algorithm: one step per neighbor, every subset equally likely.
class UniformDraw {
 public:
  static int64_t most(int64_t degree, int64_t fanout) { return most_distinct(degree, fanout); }

  /// Writes first + place for most(degree, fanout) places. A list that is taken whole comes in its own order.
  int64_t operator()(int64_t first, int64_t degree, int64_t fanout, Stream random, int64_t* out) {
    const int64_t taken = most(degree, fanout);
    if (taken == degree) {
      take_all(first, degree, out);
    } else if (taken <= kFew) {
      draw_distinct(first, degree, taken, random, out);
    } else {
      draw_many(first, degree, taken, random, out);
    }
    return taken;
  }

 private:
  static constexpr int64_t kFew = 48;  // up to here comparing with all earlier draws beats hashing

  /// draw_distinct() with a set: the same places.
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

/// `fanout` independent uniform draws: the same neighbor may come several times. -1 takes the list once.
class ReplacementDraw {
 public:
  static int64_t most(int64_t degree, int64_t fanout) { return most_replaced(degree, fanout); }

  int64_t operator()(int64_t first, int64_t degree, int64_t fanout, Stream random, int64_t* out) {
    if (fanout < 0) return take_all(first, degree, out);
    const int64_t taken = most(degree, fanout);
    draw_replaced(first, degree, taken, random, out);
    return taken;
  }
};

/// Successive draws without replacement, each proportional to the weight among what is left. Edges of weight 0
/// are never taken; a list with no more positive edges than the fanout gives them all.
/// Per draw: one search in the sums, and one look at each place taken before (so very large fanouts are slow).
class WeightedDraw {
 public:
  /// Sums of weights, per relation as cumulative_weights makes them; must be set before the first draw.
  void use(const uint64_t* sums) { sums_ = sums; }

  static int64_t most(int64_t degree, int64_t fanout) { return most_distinct(degree, fanout); }

  int64_t operator()(int64_t first, int64_t degree, int64_t fanout, Stream random, int64_t* out) {
    const ListWeights weights{sums_ + first};
    if (fanout < 0 || degree <= fanout) return take_positive(first, degree, weights, out);
    taken_.resize(fanout);
    return draw_weighted(first, degree, fanout, weights, random, out, taken_.data());
  }

 private:
  const uint64_t* sums_ = nullptr;
  GrowingArray<int64_t> taken_;
};

}  // namespace tiering
