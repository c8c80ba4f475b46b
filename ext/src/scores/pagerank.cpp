// Reverse PageRank from the CSC alone: new[t](u) = teleport[t](u) + damping * sum over relations r from type t, over
// edges u -> v of r, of s(v) / indeg_r(v); repeated max_sweeps times or until the L1 change, summed range by range, is
// at most `tolerance`. Memory: that of the sums (out_edge_sums.hpp), and 8 bytes per node. Same bytes for any number of
// threads.
#include <cmath>
#include <numeric>

#include "out_edge_sums.hpp"

namespace tiering {
namespace {

int64_t score_bytes(const std::vector<int64_t>& num_nodes) {
  return std::accumulate(num_nodes.begin(), num_nodes.end(), int64_t{0}) * static_cast<int64_t>(sizeof(double));
}

class Sweeper {
 public:
  Sweeper(const std::vector<ScoreRelation>& relations, const std::vector<int64_t>& num_nodes,
          const std::vector<NodeValues>& start, const std::vector<NodeValues>& teleport, const PagerankOptions& options)
      : relations_(relations),
        teleport_(teleport),
        options_(options),
        sums_(relations, num_nodes, options.threads, options.memory, score_bytes(num_nodes)) {
    for (size_t t = 0; t < start.size(); ++t) scores_.push_back(start[t].to_vector(num_nodes[t], options.threads));
    changes_.resize(static_cast<size_t>(sums_.num_ranges()));
  }

  /// One sweep; returns the L1 change.
  double sweep() {
    for (size_t r = 0; r < relations_.size(); ++r) contribute(r);
    sums_.sweep([&](int64_t i, const SumRange& range) { changes_[static_cast<size_t>(i)] = update(range); });
    double change = 0;
    for (const double c : changes_) change += c;
    return change;
  }

  std::vector<Buffer<double>> take_scores() { return std::move(scores_); }

 private:
  void contribute(size_t r) {
    const double* scores = scores_[static_cast<size_t>(relations_[r].dst_type)].data();
    sums_.contribute(r, [&](int64_t v, int64_t degree) { return scores[v] / static_cast<double>(degree); });
  }

  /// The scores of one range; returns their L1 change.
  double update(const SumRange& range) {
    double* const scores = scores_[static_cast<size_t>(range.type)].data() + range.first;
    const NodeValues& teleport = teleport_[static_cast<size_t>(range.type)];
    double change = 0;
    std::array<double, 512> restarts;
    for (size_t begin = 0; begin < range.sums.size(); begin += restarts.size()) {
      const size_t count = std::min(restarts.size(), range.sums.size() - begin);
      teleport.write(range.first + static_cast<int64_t>(begin), {restarts.data(), count});
      for (size_t i = 0; i < count; ++i) {
        const double next = restarts[i] + options_.damping * range.sums[begin + i];
        change += std::abs(next - scores[begin + i]);
        scores[begin + i] = next;
      }
    }
    return change;
  }

  const std::vector<ScoreRelation>& relations_;
  const std::vector<NodeValues>& teleport_;
  const PagerankOptions& options_;
  OutEdgeSums sums_;
  std::vector<Buffer<double>> scores_;
  std::vector<double> changes_;
};

void check_values(const std::vector<int64_t>& num_nodes, const std::vector<NodeValues>& start,
                  const std::vector<NodeValues>& teleport) {
  const size_t types = num_nodes.size();
  TIERING_EXPECT(start.size() == types && teleport.size() == types,
                 "start and teleport need one vector per node type: ", types);
  for (size_t t = 0; t < types; ++t)
    for (const NodeValues* values : {&start[t], &teleport[t]})
      values->check(num_nodes[t], "node type " + std::to_string(t) + ": start and teleport need");
}

}  // namespace

PagerankResult reverse_pagerank(const std::vector<ScoreRelation>& relations, const std::vector<int64_t>& num_nodes,
                                const std::vector<NodeValues>& start, const std::vector<NodeValues>& teleport,
                                const PagerankOptions& options) {
  check_values(num_nodes, start, teleport);
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
