// Reverse PageRank from the CSC alone: new[t](u) = teleport[t](u) + damping * sum over relations r from type t, over
// edges u -> v of r, of s(v) / indeg_r(v); repeated max_sweeps times or until the L1 change, summed range by range, is
// at most `tolerance`. Memory: that of the sums (out_edge_sums.hpp), and 8 bytes per node. Same bytes for any number of
// threads.
#include <cmath>
#include <numeric>

#include "out_edge_sums.hpp"

namespace tiering {
namespace {

/// Writes the scores of a range after a sweep; returns their L1 change.
double update(const SumRange& range, const NodeValues& teleport, double damping, double* scores) {
  double change = 0;
  std::array<double, 512> restarts;
  for (size_t begin = 0; begin < range.sums.size(); begin += restarts.size()) {
    const size_t count = std::min(restarts.size(), range.sums.size() - begin);
    teleport.write(range.first + static_cast<int64_t>(begin), {restarts.data(), count});
    for (size_t i = 0; i < count; ++i) {
      const double next = restarts[i] + damping * range.sums[begin + i];
      change += std::abs(next - scores[begin + i]);
      scores[begin + i] = next;
    }
  }
  return change;
}

}  // namespace

std::vector<double> update_scores(std::span<const double> sums, const NodeValues& restart, double damping, int shift,
                                  std::span<double> scores) {
  TIERING_EXPECT(sums.size() == scores.size(), "scores: expected ", sums.size(), ", found ", scores.size());
  restart.check(static_cast<int64_t>(sums.size()), "restart needs");
  std::vector<double> changes;
  for (size_t at = 0; at < sums.size(); at += size_t{1} << shift) {
    const auto own = sums.subspan(at, std::min(sums.size() - at, size_t{1} << shift));
    changes.push_back(update({0, static_cast<int64_t>(at), own}, restart, damping, scores.data() + at));
  }
  return changes;
}

PagerankResult reverse_pagerank(const std::vector<ScoreRelation>& relations, const std::vector<int64_t>& num_nodes,
                                const std::vector<NodeValues>& start, const std::vector<NodeValues>& teleport,
                                const PagerankOptions& options) {
  const size_t types = num_nodes.size();
  TIERING_EXPECT(start.size() == types && teleport.size() == types,
                 "start and teleport need one vector per node type: ", types);
  for (size_t t = 0; t < types; ++t)
    for (const NodeValues* values : {&start[t], &teleport[t]})
      values->check(num_nodes[t], "node type " + std::to_string(t) + ": start and teleport need");
  const int64_t nodes = std::accumulate(num_nodes.begin(), num_nodes.end(), int64_t{0});
  OutEdgeSums sums(relations, num_nodes, options.threads, options.memory, nodes * kValueBytes);
  PagerankResult result;
  for (size_t t = 0; t < types; ++t) result.scores.push_back(start[t].to_vector(num_nodes[t], options.threads));
  std::vector<double> changes(static_cast<size_t>(sums.num_ranges()));
  while (result.sweeps < options.max_sweeps) {
    for (size_t r = 0; r < relations.size(); ++r) {
      const double* const scores = result.scores[relations[r].dst_type].data();
      sums.contribute(r, [=](int64_t v, int64_t degree) { return scores[v] / static_cast<double>(degree); });
    }
    sums.sweep([&](int64_t i, const SumRange& range) {
      const auto type = static_cast<size_t>(range.type);
      double* const scores = result.scores[type].data() + range.first;
      changes[i] = update(range, teleport[type], options.damping, scores);
    });
    result.residual = std::accumulate(changes.begin(), changes.end(), 0.0);
    ++result.sweeps;
    if (options.tolerance > 0 && result.residual <= options.tolerance) break;
  }
  return result;
}

}  // namespace tiering
