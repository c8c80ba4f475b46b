// Edge weights as running sums in whole numbers, ready for exact draws.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "tiering/buffer.hpp"
#include "tiering/sampling/sampler.hpp"

namespace tiering {

/// Per column, running sums of its weights in fixed point: the heaviest edge of a column of d edges counts
/// 2^(62 - bits of d), so that a column sums to less than 2^62; positive weights count at least 1, 0 counts 0.
/// Why whole numbers: the draw is then exact (no rounding can take an edge of weight 0 or one that is taken
/// already), and the same on every processor.
/// Cost: one pass over the weights, 8 bytes per edge.
class CumulativeWeights {
 public:
  /// Throws where a weight is negative, infinite or NaN, where there are edges but no positive weight, or where
  /// indptr leads outside. `what` names the relation in messages.
  CumulativeWeights(const RelationView& relation, int64_t num_columns, const std::string& what, int threads);

  const uint64_t* data() const { return sums_.data(); }
  /// Hands the sums over; nothing is left.
  Buffer<uint64_t> take() { return std::move(sums_); }

 private:
  Buffer<uint64_t> sums_;
};

}  // namespace tiering
