// Reverse PageRank from the CSC alone.
//
// Returns:    new[t](u) = teleport[t](u) + damping * sum over relations r from type t, over edges u -> v
//             of r, of s(v) / indeg_r(v); repeated max_sweeps times or until the L1 change is at most
//             `tolerance`.
// Approach:   a column hands out s(v) / indeg(v), computed once per node; the sums over the out-edges are those
//             of out_edge_sums.hpp, and what follows is done while a range of them is in the cache.
// Memory:     that of the sums, and 8 bytes per node.
// Determinism: the L1 change is summed range by range. Same bytes for any number of threads.
#include <cmath>
#include <string>
#include <tiering/errors.hpp>
#include <tiering/scores.hpp>
#include <utility>
#include <vector>

#include "out_edge_sums.hpp"
#include "vectors.hpp"

namespace tiering {
namespace {

class Sweeper {
 public:
  Sweeper(const std::vector<ScoreRelation>& relations, const std::vector<int64_t>& num_nodes,
          const std::vector<std::span<const double>>& start,
          const std::vector<std::span<const double>>& teleport, const PagerankOptions& options)
      : relations_(relations),
        teleport_(teleport),
        options_(options),
        sums_(relations, num_nodes, options.threads) {
    for (const auto& values : start) scores_.push_back(copy_of(values, options.threads));
    changes_.resize(static_cast<size_t>(sums_.num_ranges()));
  }

  /// One sweep; returns the L1 change.
  double sweep() {
    for (size_t r = 0; r < relations_.size(); ++r) hand_out(r);
    sums_.sweep([&](int64_t i, const SumRange& range) { changes_[static_cast<size_t>(i)] = update(range); });
    double change = 0;
    for (const double c : changes_) change += c;
    return change;
  }

  std::vector<Buffer<double>> take_scores() { return std::move(scores_); }

 private:
  void hand_out(size_t r) {
    const auto& indptr = relations_[r].csc.indptr;
    const double* scores = scores_[static_cast<size_t>(relations_[r].dst_type)].data();
    sums_.hand_out(r, [&](int64_t column) {
      const auto v = static_cast<size_t>(column);
      return scores[v] / static_cast<double>(indptr[v + 1] - indptr[v]);
    });
  }

  /// The scores of one range; returns their L1 change.
  double update(const SumRange& range) {
    double* scores = scores_[static_cast<size_t>(range.type)].data() + range.first;
    const double* teleport = teleport_[static_cast<size_t>(range.type)].data() + range.first;
    double change = 0;
    for (size_t i = 0; i < range.sums.size(); ++i) {
      const double next = teleport[i] + options_.damping * range.sums[i];
      change += std::abs(next - scores[i]);
      scores[i] = next;
    }
    return change;
  }

  const std::vector<ScoreRelation>& relations_;
  const std::vector<std::span<const double>>& teleport_;
  const PagerankOptions& options_;
  OutEdgeSums sums_;
  std::vector<Buffer<double>> scores_;
  std::vector<double> changes_;
};

void check_vectors(const std::vector<int64_t>& num_nodes, const std::vector<std::span<const double>>& start,
                   const std::vector<std::span<const double>>& teleport) {
  const size_t types = num_nodes.size();
  TIERING_EXPECT(start.size() == types && teleport.size() == types,
                 "start and teleport need one vector per node type: " + std::to_string(types));
  for (size_t t = 0; t < types; ++t) {
    const auto n = static_cast<size_t>(num_nodes[t]);
    TIERING_EXPECT(
        start[t].size() == n && teleport[t].size() == n,
        "node type " + std::to_string(t) + ": start and teleport need " + std::to_string(n) + " values");
  }
}

}  // namespace

PagerankResult reverse_pagerank(const std::vector<ScoreRelation>& relations,
                                const std::vector<int64_t>& num_nodes,
                                const std::vector<std::span<const double>>& start,
                                const std::vector<std::span<const double>>& teleport,
                                const PagerankOptions& options) {
  check_vectors(num_nodes, start, teleport);
  PagerankResult result;
  Sweeper sweeper(relations, num_nodes, start, teleport, options);
  while (result.sweeps < options.max_sweeps) {
    result.residual = sweeper.sweep();
    ++result.sweeps;
    if (options.tolerance > 0 && result.residual <= options.tolerance) break;
  }
  result.scores = sweeper.take_scores();
  return result;
}

}  // namespace tiering
