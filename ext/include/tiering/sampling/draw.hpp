// Which places of a neighbour list are taken. A draw is a small class with one operator; further samplers
// (with replacement, weighted) are further classes of the same shape.
#pragma once

#include <cstdint>

#include "tiering/sampling/growing_array.hpp"
#include "tiering/sampling/random.hpp"

namespace tiering {

/// Uniform draw without replacement by Floyd's algorithm (Bentley & Floyd, CACM 30(9), 1987): `count` steps,
/// every subset equally likely. Places, not ids, are drawn: parallel edges are separate neighbours.
class UniformDraw {
 public:
  /// Number of neighbours taken from a list of `degree` when `fanout` are asked for (-1: all).
  static int64_t count(int64_t degree, int64_t fanout) {
    return fanout < 0 || degree < fanout ? degree : fanout;
  }

  /// Writes first + place for count(degree, fanout) places. A list that is taken whole comes in its own
  /// order.
  void operator()(int64_t first, int64_t degree, int64_t fanout, Stream random, int64_t* out) {
    const int64_t taken = count(degree, fanout);
    if (taken == degree) {
      for (int64_t i = 0; i < taken; ++i) out[i] = first + i;
    } else if (taken <= kFew) {
      draw_few(first, degree, taken, random, out);
    } else {
      draw_many(first, degree, taken, random, out);
    }
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

}  // namespace tiering
