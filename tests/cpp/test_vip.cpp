// Vertex inclusion probability against numbers worked out by hand and the recursion in extended precision.
#include <cmath>
#include <tiering/scores.hpp>

#include "check.hpp"
#include "graphs.hpp"

using namespace tiering;
using namespace tiering::test;

namespace {

using Values = std::vector<std::vector<double>>;
using Fanouts = std::vector<std::vector<int64_t>>;

struct Relation {
  int src_type, dst_type;
  PlainCsc csc;
};

struct Problem {
  std::vector<int64_t> num_nodes;
  std::vector<Relation> relations;
  Values seeds;
};

InclusionResult run(const Problem& p, const Fanouts& fanouts, InclusionOptions options = {}) {
  std::vector<ScoreRelation> relations;
  for (const auto& r : p.relations) relations.push_back({r.src_type, r.dst_type, r.csc.view()});
  std::vector<NodeValues> seeds;
  for (const auto& values : p.seeds) seeds.push_back({values});
  return inclusion_probability(relations, p.num_nodes, seeds, fanouts, options);
}

long double draw_probability(int64_t degree, int64_t fanout, bool replacement) {
  if (degree == 0 || fanout == 0) return 0;
  if (fanout < 0) return 1;
  const auto d = static_cast<long double>(degree), f = static_cast<long double>(fanout);
  return replacement ? 1 - std::pow(1 - 1 / d, f) : std::min(1.0L, f / d);
}

struct Expected {
  std::vector<std::vector<long double>> found, reads;
};

/// Verifier: the recursion over edges, products instead of sums of logarithms.
Expected recursion(const Problem& p, const Fanouts& fanouts, const InclusionOptions& options) {
  Expected e;
  for (const auto& seeds : p.seeds) e.found.emplace_back(seeds.begin(), seeds.end());
  auto fresh = e.found;
  std::vector<std::vector<long double>> drawn, waiting;
  for (const auto& r : p.relations) e.reads.emplace_back(r.csc.indptr.size() - 1, 0.0L);
  drawn = waiting = e.reads;
  for (const auto& hop : fanouts) {
    std::vector<std::vector<long double>> missed;
    for (const int64_t n : p.num_nodes) missed.emplace_back(static_cast<size_t>(n), 1.0L);
    for (size_t i = 0; i < p.relations.size(); ++i) {
      const auto& r = p.relations[i];
      const auto dst = static_cast<size_t>(r.dst_type);
      for (size_t v = 0; v + 1 < r.csc.indptr.size(); ++v) {
        const int64_t degree = r.csc.indptr[v + 1] - r.csc.indptr[v];
        const long double w = draw_probability(degree, hop[i], options.replacement),
                          active = fresh[dst][v] + (options.only_new ? 0 : waiting[i][v]);
        if (hop[i] != 0) e.reads[i][v] += options.only_new ? fresh[dst][v] : e.found[dst][v];
        drawn[i][v] += active * w;
        waiting[i][v] = active * (1 - w);
        for (int64_t k = r.csc.indptr[v]; k < r.csc.indptr[v + 1]; ++k)
          missed[static_cast<size_t>(r.src_type)][static_cast<size_t>(r.csc.indices[static_cast<size_t>(k)])] *=
              1 - drawn[i][v];
      }
    }
    for (size_t t = 0; t < p.num_nodes.size(); ++t)
      for (size_t u = 0; u < missed[t].size(); ++u) {
        const long double next = 1 - (1 - p.seeds[t][u]) * missed[t][u];
        fresh[t][u] = next - e.found[t][u];
        e.found[t][u] = next;
      }
  }
  return e;
}

Problem random_problem(const std::vector<int64_t>& num_nodes, const std::vector<std::pair<int, int>>& types,
                       int64_t num_edges) {
  Problem p{num_nodes, {}, {}};
  std::mt19937_64 random(5);
  for (const auto& [s, d] : types) {
    const int64_t ns = num_nodes[static_cast<size_t>(s)], nd = num_nodes[static_cast<size_t>(d)];
    const auto edges = random_edges(ns, nd, num_edges, random());
    p.relations.push_back({s, d, grouped(widened(edges.dst), widened(edges.src), nd)});
  }
  for (const int64_t n : num_nodes) {
    p.seeds.emplace_back();
    for (int64_t v = 0; v < n; ++v)
      p.seeds.back().push_back(random() % 3 ? 0 : std::uniform_real_distribution<double>(0, 1)(random));
  }
  return p;
}

void check_close(const std::vector<Buffer<double>>& values, const std::vector<std::vector<long double>>& expected) {
  CHECK(values.size() == expected.size());
  for (size_t i = 0; i < values.size(); ++i)
    for (size_t v = 0; v < expected[i].size(); ++v)
      CHECK(std::abs(values[i][static_cast<int64_t>(v)] - expected[i][v]) <= 1e-13L);
}

void test_recursion(const Problem& p, const Fanouts& fanouts) {
  for (const bool only_new : {false, true})
    for (const bool replacement : {false, true}) {
      const auto expected = recursion(p, fanouts, {only_new, replacement, 1});
      const auto first = run(p, fanouts, {only_new, replacement, 1});
      check_close(first.found, expected.found);
      check_close(first.reads, expected.reads);
      for (const int threads : kThreads) {
        const auto again = run(p, fanouts, {only_new, replacement, threads});
        for (size_t t = 0; t < again.found.size(); ++t) CHECK(copied(again.found[t]) == copied(first.found[t]));
        for (size_t r = 0; r < again.reads.size(); ++r) CHECK(copied(again.reads[r]) == copied(first.reads[r]));
      }
    }
}

/// 0 -> 2, 1 -> 2, 2 -> 3, 4 alone; 3 is a seed with probability 1/2. Fanout 1, two hops.
void test_by_hand() {
  const Problem p{{5}, {{0, 0, {{0, 0, 0, 2, 3, 3}, {}, {0, 1, 2}}}}, {{0, 0, 0, 0.5, 0}}};
  const auto all = run(p, {{1}, {1}});
  check_close(all.found, {{0.25, 0.25, 0.5, 0.5, 0}});
  check_close(all.reads, {{0, 0, 0.5, 1, 0}});
  const auto once = run(p, {{1}, {1}}, {true, false, 2});
  check_close(once.found, {{0.25, 0.25, 0.5, 0.5, 0}});
  check_close(once.reads, {{0, 0, 0.5, 0.5, 0}});
  const auto longer = run(p, {{1}, {1}, {1}});  // 2 asks twice: 1/2 * (1 - 1/4)
  check_close(longer.found, {{0.375, 0.375, 0.5, 0.5, 0}});
}

/// Certainty is exactly 1, what nothing reaches exactly 0, and more hops never take away.
void test_extremes() {
  auto p = random_problem({2000}, {{0, 0}}, 6000);
  for (double& seed : p.seeds[0]) seed = seed > 0.5 ? 1 : 0;
  Fanouts fanouts;
  std::vector<double> before(2000, 0);
  for (int hops = 0; hops < 5; ++hops, fanouts.push_back({hops % 2 ? -1 : 2}))
    for (const bool only_new : {false, true}) {
      const auto found = copied(run(p, fanouts, {only_new, false, 2}).found[0]);
      for (size_t v = 0; v < found.size(); ++v) {
        CHECK(found[v] >= 0 && found[v] <= 1);
        CHECK(p.seeds[0][v] < 1 || found[v] == 1);
        if (!only_new) CHECK(found[v] >= before[v]);
      }
      if (!only_new) before = found;
    }
  const auto whole = copied(run(p, {{-1}, {-1}, {-1}, {-1}}).found[0]);
  CHECK(std::all_of(whole.begin(), whole.end(), [](double f) { return f == 0 || f == 1; }));
  p.seeds[0].assign(2000, 0);
  const auto none = copied(run(p, {{-1}, {-1}}).found[0]);
  CHECK(none == p.seeds[0]);
}

void test_refusals() {
  auto p = random_problem({50}, {{0, 0}}, 100);
  p.seeds[0][3] = 1.5;
  check_refused("p0[3] is 1.5", [&] { run(p, {{1}}); });
  p.seeds[0][3] = std::nan("");
  check_refused("p0[3] is", [&] { run(p, {{1}}); });
  p.seeds[0].pop_back();
  check_refused("p0 needs 50 values", [&] { run(p, {{1}}); });
  p = random_problem({50}, {{0, 0}}, 100);
  check_refused("fanouts: one entry per relation", [&] { run(p, {{1, 2}}); });
  check_refused("fanouts: expected -1 or more, found -2", [&] { run(p, {{-2}}); });
  p.relations[0].csc.indices[7] = -1;
  check_refused("indices[7] is -1, outside 0..49", [&] { run(p, {{1}}); });
}

}  // namespace

int main() {
  test_by_hand();
  test_recursion(random_problem({1}, {{0, 0}}, 3), {{1}, {1}});
  test_recursion(random_problem({1000}, {{0, 0}}, 3000), {{3}, {-1}, {0}, {2}});
  auto types = random_problem({300, 4000, 7, 0}, {{0, 1}, {1, 0}, {1, 1}, {1, 0}, {2, 1}}, 2500);
  types.relations.push_back({3, 3, {{0}, {}, {}}});
  types.relations.push_back({0, 2, {std::vector<int64_t>(8, 0), {}, {}}});
  test_recursion(types, {{2, 3, -1, 1, 0, 5, 2}, {0, 2, 1, 1, 3, 5, 2}, {4, -1, 0, 7, 1, 5, 2}});
  test_extremes();
  test_refusals();
  std::cout << "test_vip: ok\n";
  return 0;
}
