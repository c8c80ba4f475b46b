// One hop of layer-wise importance sampling (LADIES): one draw of nodes for the whole frontier.
#pragma once

#include <bit>

#include "tiering/sampling/hop_task.hpp"

namespace tiering {

/// By arithmetic that every machine rounds alike, without the system's log(): compile with -ffp-contract=off. -log((k +
/// 1/2) / 2^52) for k = the upper 52 bits of `bits`; relative error below 1e-15, between 1.1e-16 and 36.8. With x = m *
/// 2^e, m in [sqrt(1/2), sqrt(2)): log(x) = e * log(2) + 2 atanh((m - 1) / (m + 1)), up to the 23rd power.
constexpr double exponential(uint64_t bits) {
  const double x = (static_cast<double>(bits >> 12) + 0.5) * 0x1p-52;  // exact: 53 bits
  constexpr uint64_t kSqrtHalf = 0x3fe6a09e667f3bcdULL;
  const uint64_t word = std::bit_cast<uint64_t>(x) - kSqrtHalf;
  const auto exponent = static_cast<int64_t>(word) >> 52;  // arithmetic: floor
  const double m = std::bit_cast<double>((word & 0xfffffffffffffULL) + kSqrtHalf);
  const double s = (m - 1.0) / (m + 1.0), z = s * s;
  double sum = 1.0 / 23.0;
  for (int power = 21; power >= 1; power -= 2) sum = 1.0 / power + z * sum;
  return -(static_cast<double>(exponent) * 0.69314718055994530942 + 2.0 * s * sum);
}

/// The fanout is the nodes to draw for the layer; those of the source type that are known are kept without being drawn.
/// Memory: 28 bytes per candidate, 16 more while drawing, and 4 per edge into the frontier where edges are
/// wanted. Reused from hop to hop.
class LayerHop {
 public:
  void run(const HopTask& task);

 private:
  static constexpr int64_t kChunk = 256;
  static constexpr int64_t kAhead = 24;
  static constexpr int32_t kLeftOut = -2, kKept = -1;

  /// Edges on their way into the candidate table.
  struct Chunk {
    int64_t size = 0;
    int64_t ids[kChunk];
    double shares[kChunk];
  };
  /// A candidate and when its exponential clock rings.
  struct Clock {
    double rings;
    int64_t candidate;
  };

  template <typename Index>
  void collect(const Index* indices);
  template <typename Index>
  void read_ids(const Index* indices, int64_t first, int64_t size, double share, Chunk& chunk);
  void add(Chunk& chunk);
  void draw();
  void keep_known();
  void number_kept();
  void write_edges();
  int64_t count_edges() const;

  const HopTask* task_ = nullptr;
  NodeTable candidates_;               // in-neighbours of the frontier, in order of discovery
  GrowingArray<double> importance_;    // of each candidate
  GrowingArray<int32_t> state_;        // of each candidate: kLeftOut, kKept, or its place in the sources
  GrowingArray<Clock> clocks_;         //
  GrowingArray<int32_t> edge_source_;  // candidate of every edge into the frontier
  GrowingArray<double> row_;           // unscaled weights of one destination
  Chunk chunks_[2];
};

}  // namespace tiering
