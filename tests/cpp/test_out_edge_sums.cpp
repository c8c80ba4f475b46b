// Sums over out-edges against adding edge by edge in extended precision, with work cut coarsely and finely.
#include <cmath>
#include <set>

#include "check.hpp"
#include "graphs.hpp"
#include "scores/out_edge_sums.hpp"

using namespace tiering;
using namespace tiering::test;

namespace {

/// A graph of few edges cut as if it had billions.
const SumLimits kFine{64, 1 << 20, 0};

using Sums = std::vector<std::vector<double>>;

struct Problem {
  std::vector<int64_t> num_nodes;
  std::vector<int> src_types, dst_types;
  std::vector<PlainCsc> graphs;
  std::vector<std::vector<int64_t>> wide;  ///< indices as int64, where the relation has them so
  Sums x;                                  ///< per relation and column

  ScoreRelation relation(size_t r) const {
    CscView view = graphs[r].view();
    if (!wide[r].empty()) view.indices = span_of(wide[r]);
    return {src_types[r], dst_types[r], view};
  }
};

void add_relation(Problem& p, int src, int dst, PlainCsc csc, bool wide = false) {
  std::mt19937_64 random(p.graphs.size() + 1);
  p.src_types.push_back(src);
  p.dst_types.push_back(dst);
  p.wide.push_back(wide ? widened(csc.indices) : std::vector<int64_t>{});
  p.x.emplace_back();
  for (int64_t v = 0; v < csc.view().num_columns(); ++v)
    p.x.back().push_back(std::uniform_real_distribution<double>(0, 1)(random));
  p.graphs.push_back(std::move(csc));
}

void add_random(Problem& p, int src, int dst, int64_t num_edges, bool wide = false) {
  const int64_t num_src = p.num_nodes[static_cast<size_t>(src)], num_dst = p.num_nodes[static_cast<size_t>(dst)];
  const auto edges = random_edges(num_src, num_dst, num_edges, p.graphs.size());
  add_relation(p, src, dst, grouped(widened(edges.dst), widened(edges.src), num_dst), wide);
}

Sums expected_sums(const Problem& p, const std::vector<bool>& active) {
  std::vector<std::vector<long double>> sums;
  for (const int64_t n : p.num_nodes) sums.emplace_back(static_cast<size_t>(n), 0.0L);
  for (size_t r = 0; r < p.graphs.size(); ++r) {
    if (!active[r]) continue;
    const auto& g = p.graphs[r];
    for (size_t v = 0; v + 1 < g.indptr.size(); ++v)
      for (int64_t k = g.indptr[v]; k < g.indptr[v + 1]; ++k)
        sums[static_cast<size_t>(p.src_types[r])][static_cast<size_t>(g.indices[static_cast<size_t>(k)])] += p.x[r][v];
  }
  Sums rounded;
  for (const auto& values : sums) rounded.emplace_back(values.begin(), values.end());
  return rounded;
}

Sums swept(OutEdgeSums& kernel, const Problem& p, const std::vector<bool>& active) {
  for (size_t r = 0; r < p.graphs.size(); ++r) {
    kernel.set_active(r, active[r]);
    kernel.contribute(r, [&](int64_t v, int64_t degree) {
      const auto& indptr = p.graphs[r].indptr;
      CHECK(degree == indptr[static_cast<size_t>(v) + 1] - indptr[static_cast<size_t>(v)]);
      return p.x[r][static_cast<size_t>(v)];
    });
  }
  Sums sums;
  for (const int64_t n : p.num_nodes) sums.emplace_back(static_cast<size_t>(n), -1.0);
  std::vector<int> used(static_cast<size_t>(kernel.num_ranges()), 0);
  kernel.sweep([&](int64_t i, const SumRange& range) {
    ++used[static_cast<size_t>(i)];
    std::copy(range.sums.begin(), range.sums.end(), sums[static_cast<size_t>(range.type)].begin() + range.first);
  });
  CHECK(std::all_of(used.begin(), used.end(), [](int times) { return times == 1; }));
  return sums;
}

/// A relation's columns [range), by which a task bins their edges.
BinnedCsc binned_columns(const Problem& p, size_t r, std::pair<int64_t, int64_t> range, int64_t high) {
  const CscView whole = p.relation(r).csc;
  std::vector<int64_t> indptr;
  for (int64_t v = range.first; v <= range.second; ++v)
    indptr.push_back(whole.indptr[static_cast<size_t>(v)] - whole.indptr[static_cast<size_t>(range.first)]);
  const auto first = static_cast<size_t>(whole.indptr[static_cast<size_t>(range.first)]);
  const std::vector<int64_t> indices(p.graphs[r].indices.begin() + static_cast<int64_t>(first),
                                     p.graphs[r].indices.begin() + static_cast<int64_t>(first) + indptr.back());
  return {{indptr, span_of(indices)}, p.num_nodes[static_cast<size_t>(p.src_types[r])], high, 2};
}

/// Sums by tasks that have so many ranges of bins, and get the edges in so many ranges of columns.
Sums by_tasks(const Problem& p, const std::vector<bool>& active, const SumLimits& limits, int tasks, int cuts) {
  Sums sums;
  std::vector<std::vector<int64_t>> counts;
  int64_t all_edges = 0;
  for (size_t t = 0; t < p.num_nodes.size(); ++t) {
    counts.emplace_back(static_cast<size_t>(source_bins(p.num_nodes[t]).num_buckets()), 0);
    for (size_t r = 0; r < p.graphs.size(); ++r) {
      if (static_cast<size_t>(p.src_types[r]) != t) continue;
      const Buffer<int64_t> own = count_by_bin(p.relation(r).csc, p.num_nodes[t], 3);
      for (int64_t b = 0; b < own.size(); ++b) counts.back()[static_cast<size_t>(b)] += own[b];
    }
    all_edges = std::accumulate(counts.back().begin(), counts.back().end(), all_edges);
  }
  for (size_t t = 0; t < p.num_nodes.size(); ++t) {
    const int shift = source_bin_shift(p.num_nodes[t]);
    const auto bins = static_cast<int64_t>(counts[t].size());
    sums.emplace_back();
    for (int task = 0; task < tasks && p.num_nodes[t] > 0; ++task) {
      const auto [low, high] = even_cut(bins, tasks, task);
      const std::span own(counts[t].begin() + low, static_cast<size_t>(high - low));
      if (own.empty()) continue;
      BinSums kernel(std::min(p.num_nodes[t], high << shift) - (low << shift), shift, own, all_edges, limits.min_piece,
                     limits.max_pieces);
      for (size_t r = 0; r < p.graphs.size(); ++r) {
        if (static_cast<size_t>(p.src_types[r]) != t) continue;
        const CscView csc = p.relation(r).csc;
        const int64_t many = high_degree(csc.num_columns(), bins, limits);
        for (const ColumnKind kind : kColumnKinds)
          for (int cut = 0; cut < cuts; ++cut) {
            const auto range = even_cut(csc.num_columns(), cuts, cut);
            const BinnedCsc part = binned_columns(p, r, range, many);
            const int64_t rows = part.starts[kind].size() / bins;
            std::vector<int64_t> starts;
            for (int64_t row = 0; row < rows; ++row)
              for (int64_t bin = low; bin < high; ++bin) starts.push_back(part.starts[kind][row * bins + bin]);
            std::vector<double> values;
            for (int64_t v = range.first; v < range.second; ++v) {
              const int64_t degree = csc.indptr[static_cast<size_t>(v) + 1] - csc.indptr[static_cast<size_t>(v)];
              if (kind == ColumnKind::kHigh ? degree >= many : degree > 0 && degree < many)
                values.push_back(p.x[r][static_cast<size_t>(v)]);
            }
            const auto half = std::span<const double>(values).subspan(0, values.size() / 2);
            const std::vector<std::span<const double>> pieces{half,
                                                              std::span<const double>(values).subspan(half.size())};
            kernel.add(part.edges.span(), starts, active[r] ? std::optional(pieces) : std::nullopt, 1 + cut % 3);
          }
      }
      const Buffer<double> made = kernel.take();
      sums.back().insert(sums.back().end(), made.data(), made.data() + made.size());
    }
  }
  return sums;
}

/// The same bytes with less memory: from one byte, which takes the smallest groups there are, to plenty; every budget
/// with one number of threads, every number with budgets of all sizes. Returns the most that lay on disk.
int64_t test_budgets(const std::vector<ScoreRelation>& relations, const Problem& p, const SumLimits& limits,
                     const Sums& expected) {
  const std::vector<bool> all(p.graphs.size(), true);
  std::set<int64_t> on_disk;
  size_t turn = 0;
  for (int64_t bytes = 1; bytes < (int64_t{1} << 28); bytes = bytes * 2 + 200000) {
    const int threads = kThreads[turn++ % kThreads.size()];
    OutEdgeSums kernel(relations, p.num_nodes, threads, {bytes, "/tmp", [] {}}, 0, limits);
    on_disk.insert(kernel.plan().num_spilled());
    CHECK(swept(kernel, p, all) == expected);
    CHECK(swept(kernel, p, all) == expected);
  }
  CHECK(*on_disk.begin() == 0);
  return *on_disk.rbegin();
}

/// All thread counts agree to the last bit, and with the truth to rounding. Returns the most that lay on disk.
int64_t test_sums(const Problem& p, const SumLimits& limits) {
  std::vector<ScoreRelation> relations;
  for (size_t r = 0; r < p.graphs.size(); ++r) relations.push_back(p.relation(r));
  const std::vector<bool> all(p.graphs.size(), true);
  std::vector<bool> some(all);
  if (!some.empty()) some[0] = false;
  Sums first;
  for (const int threads : kThreads) {
    OutEdgeSums kernel(relations, p.num_nodes, threads, {}, 0, limits);
    const Sums sums = swept(kernel, p, all), expected = expected_sums(p, all);
    for (size_t t = 0; t < sums.size(); ++t)
      for (size_t u = 0; u < sums[t].size(); ++u)
        CHECK(std::abs(sums[t][u] - expected[t][u]) <= 1e-12 * expected[t][u]);
    if (threads == kThreads.front()) first = sums;
    CHECK(sums == first);
    const Sums fewer = swept(kernel, p, some), truth = expected_sums(p, some);
    for (size_t t = 0; t < sums.size(); ++t)
      for (size_t u = 0; u < sums[t].size(); ++u) CHECK(std::abs(fewer[t][u] - truth[t][u]) <= 1e-12 * truth[t][u]);
    CHECK(swept(kernel, p, all) == first);
    if (threads == 2) CHECK(by_tasks(p, all, limits, 3, 2) == first && by_tasks(p, some, limits, 2, 3) == fewer);
  }
  return test_budgets(relations, p, limits, first);
}

void test_random_graphs() {
  for (const SumLimits& limits : {SumLimits{}, kFine}) {
    Problem one{{70000}, {}, {}, {}, {}, {}};
    add_random(one, 0, 0, 30000);
    test_sums(one, limits);
    Problem types{{300, 5000, 0, 1}, {}, {}, {}, {}, {}};
    add_random(types, 0, 1, 6000);
    add_random(types, 1, 0, 3000, true);
    add_random(types, 1, 1, 0);
    add_random(types, 3, 1, 700);
    add_random(types, 1, 1, 9000, true);
    add_relation(types, 2, 2, {{0}, {}, {}});
    test_sums(types, limits);
    test_sums({{5, 0}, {}, {}, {}, {}, {}}, limits);
  }
}

/// More ranks than a block holds, of few edges and of many.
void test_many_columns() {
  const int64_t n = 90000;
  Problem p{{n}, {}, {}, {}, {}, {}};
  PlainCsc csc{{0}, {}, {}};
  for (int64_t v = 0; v < n; ++v) {
    for (int64_t k = 0; k < (v % 3 == 0 ? 9 : 1); ++k)
      csc.indices.push_back(static_cast<int32_t>((v * 7919 + k * 104729) % n));
    csc.indptr.push_back(static_cast<int64_t>(csc.indices.size()));
  }
  add_relation(p, 0, 0, std::move(csc));
  test_sums(p, {});
  CHECK(test_sums(p, {1 << 12, 1 << 20, 0}) > 0);
}

int64_t largest_piece(const OutEdgeSums& sums) {
  int64_t largest = 0;
  for (const SumPiece& piece : sums.plan().pieces()) largest = std::max(largest, piece.to - piece.from);
  return largest;
}

/// One source with an edge to every column: the work of its bin must still be cut.
void test_star() {
  const int64_t n = 20000;
  PlainCsc csc{{0}, {}, {}};
  for (int64_t v = 0; v < n; ++v) {
    csc.indices.push_back(17);
    if (v % 4 == 0) csc.indices.push_back(static_cast<int32_t>(v));
    csc.indptr.push_back(static_cast<int64_t>(csc.indices.size()));
  }
  Problem p{{n}, {}, {}, {}, {}, {}};
  add_relation(p, 0, 0, std::move(csc));
  test_sums(p, kFine);
  for (const int threads : kThreads) {
    CHECK(largest_piece(OutEdgeSums({p.relation(0)}, p.num_nodes, threads, {}, 0, kFine)) <= 64);
    CHECK(largest_piece(OutEdgeSums({p.relation(0)}, p.num_nodes, threads, {}, 0, {1, 8, 0})) <= n * 5 / 4 / 8);
  }
}

}  // namespace

int main() {
  test_random_graphs();
  test_many_columns();
  test_star();
  std::cout << "test_out_edge_sums: ok\n";
  return 0;
}
