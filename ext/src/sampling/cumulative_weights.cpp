#include <cmath>
#include <sstream>

#include "tiering/errors.hpp"
#include "tiering/graph.hpp"
#include "tiering/sampling/sampler.hpp"

namespace tiering {

namespace {

[[noreturn]] void bad_weight(const std::string& what, int64_t edge, double weight) {
  std::ostringstream text;
  text << "weights of " << what << ": expected finite weights of 0 or more, found " << weight << " at edge " << edge;
  throw InputError(text.str(), InputError::Subject::weights);
}

/// Fixed-point sums of one column; returns whether any weight is positive.
bool sum_column(const WeightArray& weights, int64_t begin, int64_t end, uint64_t* sums) {
  double heaviest = 0;
  for (int64_t e = begin; e < end; ++e) heaviest = std::max(heaviest, weights[e]);
  if (heaviest == 0) {
    std::fill(sums + begin, sums + end, 0);
    return false;
  }
  const int bits = 64 - __builtin_clzll(static_cast<uint64_t>(end - begin));
  uint64_t sum = 0;
  for (int64_t e = begin; e < end; ++e) {
    const double weight = weights[e];
    if (weight > 0)
      sum += std::max<uint64_t>(1, static_cast<uint64_t>(std::ldexp(std::min(1.0, weight / heaviest), 62 - bits)));
    sums[e] = sum;
  }
  return true;
}

}  // namespace

Buffer<uint64_t> cumulative_weights(const RelationView& relation, int64_t num_columns, const std::string& what,
                                    int threads) {
  const WeightArray& weights = relation.weights;
  const int64_t edges = relation.indices.size;
  const auto expect = [&what](bool fits, const std::string& text) {
    if (!fits) throw InputError("weights of " + what + ": " + text, InputError::Subject::weights);
  };
  expect(edges == 0 || weights.data != nullptr, "expected one per edge, found none");
  expect(weights.size == edges,
         "expected " + std::to_string(edges) + ", one per edge, found " + std::to_string(weights.size));
  try {
    check_indptr({relation.indptr, static_cast<size_t>(num_columns) + 1}, edges, "indptr of " + what, threads);
  } catch (const InputError& error) {
    throw InputError(error.what(), InputError::Subject::adjacency);
  }
  Buffer<uint64_t> sums(edges);
  std::atomic<bool> positive{false};
  for_cuts(threads, edges, [&](int64_t first, int64_t last) {
    for (int64_t e = first; e < last; ++e)
      if (!(weights[e] >= 0 && std::isfinite(weights[e]))) bad_weight(what, e, weights[e]);
  });
  constexpr int64_t kColumns = 4096;
  for_ranges(threads, 0, num_columns, kColumns, [&](int64_t first, int64_t end) {
    bool any = false;
    for (int64_t v = first; v < end; ++v) {
      const int64_t begin = relation.indptr[v], column_end = relation.indptr[v + 1];
      if (begin < 0 || column_end > edges) changed_meanwhile();
      if (begin < column_end) any |= sum_column(weights, begin, column_end, sums.data());
    }
    if (any) positive = true;
  });
  expect(edges == 0 || positive, "all " + std::to_string(edges) + " are 0, so no edge can be sampled");
  return sums;
}

}  // namespace tiering
