// Scores by several threads, under TSan: the same bytes as by one. tests/native compares them with other methods.
#include <iostream>
#include <random>
#include <tiering/scores.hpp>
#include <utility>
#include <vector>

#include "check.hpp"
#include "graphs.hpp"

using namespace tiering;
using namespace tiering::test;

namespace {

struct Problem {
  std::vector<int64_t> num_nodes;
  std::vector<PlainCsc> graphs{};
  std::vector<ScoreRelation> relations{};
  std::vector<std::vector<double>> values{};
  std::vector<NodeValues> views{};

  /// Random edges between pairs of types, and a number of 0..1 for each node.
  Problem(std::vector<int64_t> nodes, const std::vector<std::pair<int, int>>& types, int64_t num_edges)
      : num_nodes(std::move(nodes)) {
    std::mt19937_64 random(9);
    std::uniform_real_distribution<double> uniform;
    for (const auto& [s, d] : types) {
      const int64_t ns = num_nodes[static_cast<size_t>(s)], nd = num_nodes[static_cast<size_t>(d)];
      const auto edges = random_edges(ns, nd, num_edges, random());
      graphs.push_back(grouped(widened(edges.dst), widened(edges.src), nd));
    }
    for (size_t r = 0; r < types.size(); ++r) relations.push_back({types[r].first, types[r].second, graphs[r].view()});
    for (const int64_t n : num_nodes) {
      values.emplace_back();
      for (int64_t v = 0; v < n; ++v) values.back().push_back(uniform(random));
    }
    for (const auto& each : values) views.push_back({each});
  }
};

std::vector<double> flat(const std::vector<Buffer<double>>& results) {
  std::vector<double> all;
  for (const auto& values : results) all.insert(all.end(), values.data(), values.data() + values.size());
  return all;
}

void test_pagerank(const Problem& p) {
  const auto sweep = [&](int threads) {
    return reverse_pagerank(p.relations, p.num_nodes, p.views, p.views, {.max_sweeps = 4, .threads = threads});
  };
  const auto one = sweep(1);
  for (const int threads : kThreads) {
    const auto again = sweep(threads);
    CHECK(again.residual == one.residual && flat(again.scores) == flat(one.scores));
  }
}

void test_inclusion(const Problem& p) {
  const std::vector<std::vector<int64_t>> fanouts{std::vector<int64_t>(p.relations.size(), 2),
                                                  std::vector<int64_t>(p.relations.size(), -1)};
  for (const bool only_new : {false, true}) {
    const auto spread = [&](int threads) {
      return inclusion_probability(p.relations, p.num_nodes, p.views, fanouts, {only_new, !only_new, threads});
    };
    const auto one = spread(1);
    for (const int threads : kThreads) {
      const auto again = spread(threads);
      CHECK(flat(again.found) == flat(one.found) && flat(again.reads) == flat(one.reads));
    }
  }
}

}  // namespace

int main() {
  for (const auto& problem : {Problem({1000}, {{0, 0}}, 20000), Problem({300000}, {{0, 0}}, 30000),
                              Problem({300, 70000, 0}, {{0, 1}, {1, 0}, {1, 1}, {1, 0}}, 5000)}) {
    test_pagerank(problem);
    test_inclusion(problem);
  }
  std::cout << "test_scores: ok\n";
  return 0;
}
