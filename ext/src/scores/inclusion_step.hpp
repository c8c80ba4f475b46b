// What one hop does to one list and to one node, for whoever holds them: see inclusion.cpp for the recursion.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace tiering {

/// Probability that a given place of a list of `degree` > 0 is drawn.
inline double draw_probability(int64_t degree, int64_t fanout, bool replacement) {
  if (fanout <= 0) return fanout < 0 ? 1 : 0;
  const auto d = static_cast<double>(degree), f = static_cast<double>(fanout);
  if (replacement) return degree == 1 ? 1 : -std::expm1(f * std::log1p(-1 / d));
  return fanout >= degree ? 1 : f / d;
}

/// Lets a list draw; returns log(1 - D). `waiting` is null where nodes ask only once.
inline double draw_list(double fresh, int64_t degree, int64_t fanout, bool replacement, double& drawn,
                        double* waiting) {
  const double active = fresh + (waiting == nullptr ? 0 : *waiting);
  if (active > 0) {
    const double w = draw_probability(degree, fanout, replacement);
    drawn = std::min(1.0, drawn + active * w);
    if (waiting != nullptr) *waiting = active * (1 - w);
  }
  return drawn == 0 ? 0 : std::log1p(-drawn);
}

/// F of a node by the sum over its out-edges; `found` is what it was in the hop before.
inline double find_node(double seed, double sum, double found) {
  const double next = sum == 0 ? seed : seed - (1 - seed) * std::expm1(sum);
  return std::clamp(next, found, 1.0);
}

}  // namespace tiering
