// Reverse PageRank against a push over the edges one by one, in extended precision.
#include <cmath>
#include <memory>
#include <tiering/scores.hpp>

#include "check.hpp"
#include "graphs.hpp"

using namespace tiering;
using namespace tiering::test;

namespace {

using Scores = std::vector<std::vector<double>>;

struct Relation {
  int src_type, dst_type;
  PlainCsc csc;
};

struct Problem {
  std::vector<int64_t> num_nodes;
  std::vector<Relation> relations;
  Scores start, teleport;
};

Problem random_problem(const std::vector<int64_t>& num_nodes, const std::vector<std::pair<int, int>>& types,
                       int64_t num_edges) {
  Problem p{num_nodes, {}, {}, {}};
  std::mt19937_64 random(9);
  std::uniform_real_distribution<double> uniform;
  for (const auto& [s, d] : types) {
    const auto ns = num_nodes[static_cast<size_t>(s)], nd = num_nodes[static_cast<size_t>(d)];
    const auto edges = random_edges(ns, nd, num_edges, random());
    p.relations.push_back({s, d, grouped(widened(edges.dst), widened(edges.src), nd)});
  }
  for (const int64_t n : num_nodes) {
    p.start.emplace_back();
    p.teleport.emplace_back();
    for (int64_t i = 0; i < n; ++i) {
      p.start.back().push_back(uniform(random));
      p.teleport.back().push_back(0.15 * uniform(random));
    }
  }
  return p;
}

PagerankResult run(const Problem& p, PagerankOptions options) {
  std::vector<ScoreRelation> relations;
  for (const auto& r : p.relations) relations.push_back({r.src_type, r.dst_type, r.csc.view()});
  std::vector<NodeValues> start, teleport;
  for (const auto& values : p.start) start.push_back({values});
  for (const auto& values : p.teleport) teleport.push_back({values});
  return reverse_pagerank(relations, p.num_nodes, start, teleport, options);
}

/// Verifier: every edge pushes its share, in long double; returns the L1 change of the last sweep.
double push_serially(const Problem& p, double damping, int sweeps, Scores& scores) {
  scores = p.start;
  double change = 0;
  for (int sweep = 0; sweep < sweeps; ++sweep) {
    std::vector<std::vector<long double>> next;
    for (const auto& t : p.teleport) next.emplace_back(t.begin(), t.end());
    for (const auto& r : p.relations)
      for (size_t v = 0; v + 1 < r.csc.indptr.size(); ++v)
        for (int64_t k = r.csc.indptr[v]; k < r.csc.indptr[v + 1]; ++k)
          next[static_cast<size_t>(r.src_type)][static_cast<size_t>(r.csc.indices[static_cast<size_t>(k)])] +=
              static_cast<long double>(damping) * scores[static_cast<size_t>(r.dst_type)][v] /
              static_cast<long double>(r.csc.indptr[v + 1] - r.csc.indptr[v]);
    long double sum = 0;
    for (size_t t = 0; t < scores.size(); ++t)
      for (size_t u = 0; u < scores[t].size(); ++u) {
        sum += std::abs(next[t][u] - scores[t][u]);
        scores[t][u] = static_cast<double>(next[t][u]);
      }
    change = static_cast<double>(sum);
  }
  return change;
}

bool close(double a, double b) { return std::abs(a - b) <= 1e-12 * std::max(std::abs(a), std::abs(b)); }

void test_sweeps(const Problem& p, int sweeps) {
  Scores expected;
  const double change = push_serially(p, 0.85, sweeps, expected);
  const auto first = run(p, {0.85, sweeps, 0, 1});
  CHECK(first.sweeps == sweeps);
  CHECK(std::abs(first.residual - change) <= 1e-9 * (1 + change));
  for (size_t t = 0; t < expected.size(); ++t)
    for (size_t u = 0; u < expected[t].size(); ++u)
      CHECK(close(first.scores[t][static_cast<int64_t>(u)], expected[t][u]));
  for (const int threads : kThreads) {
    const auto again = run(p, {0.85, sweeps, 0, threads});
    CHECK(again.residual == first.residual);
    for (size_t t = 0; t < expected.size(); ++t) CHECK(copied(again.scores[t]) == copied(first.scores[t]));
  }
}

/// a -> b, a -> c, b -> c: c collects from nobody; worked out by hand.
void test_by_hand() {
  Problem p{{3}, {{0, 0, {{0, 0, 1, 3}, {}, {0, 0, 1}}}}, {{1, 1, 1}}, {{0, 0, 0}}};
  const auto once = run(p, {0.5, 1, 0, 2});
  CHECK((copied(once.scores[0]) == std::vector<double>{0.5 * (1 + 0.5), 0.5 * 0.5, 0}));
}

void test_tolerance() {
  const auto p = random_problem({500}, {{0, 0}}, 4000);
  const auto result = run(p, {0.85, 1000, 1e-9, 2});
  CHECK(result.sweeps < 1000 && result.residual <= 1e-9);
  CHECK(run(p, {0.85, 1000, 1e-9, 7}).sweeps == result.sweeps);
  const auto none = run(p, {0.85, 0, 0, 2});
  CHECK(none.sweeps == 0 && copied(none.scores[0]) == p.start[0]);
}

void test_refusals() {
  auto p = random_problem({50}, {{0, 0}}, 100);
  p.relations[0].csc.indices[7] = 50;
  check_refused("indices[7] is 50, outside 0..49", [&] { run(p, {}); });
  p = random_problem({50}, {{0, 0}}, 100);
  p.start[0].pop_back();
  check_refused("start and teleport need 50 values", [&] { run(p, {}); });
  p = random_problem({50}, {{0, 0}}, 100);
  p.relations[0].src_type = 1;
  check_refused("node type", [&] { run(p, {}); });
}

}  // namespace

int main() {
  test_by_hand();
  test_sweeps(random_problem({1}, {{0, 0}}, 0), 2);
  test_sweeps(random_problem({1}, {{0, 0}}, 3), 2);
  test_sweeps(random_problem({1000}, {{0, 0}}, 20000), 5);
  test_sweeps(random_problem({300000}, {{0, 0}}, 30000), 3);
  test_sweeps(random_problem({300, 70000, 0}, {{0, 1}, {1, 0}, {1, 1}, {1, 0}}, 5000), 4);
  test_tolerance();
  test_refusals();
  std::cout << "test_pagerank: ok\n";
  return 0;
}
