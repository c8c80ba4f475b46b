// Every kernel by several threads, under TSan: the same bytes as by one. tests/native compares them with other methods.
#include <cmath>
#include <tiering/reorder.hpp>
#include <tiering/scores.hpp>

#include "check.hpp"
#include "graphs.hpp"
#include "tiering/sampling/sampler.hpp"

using namespace tiering;
using namespace tiering::test;

namespace {

template <typename T>
std::vector<T> random_permutation(int64_t n, uint64_t seed) {
  std::vector<T> p(static_cast<size_t>(n));
  std::iota(p.begin(), p.end(), T{0});
  std::shuffle(p.begin(), p.end(), std::mt19937_64(seed));
  return p;
}

/// CHECKs that work(threads) returns the same for any number of threads.
template <typename Work>
void check_threads(Work&& work) {
  const auto one = work(1);
  for (const int threads : kThreads) CHECK(work(threads) == one);
}

/// Sizes of the windows of the result, of the chunks of the entries and of the slices of the source map.
struct Cuts {
  int64_t window, chunk, slice;
};

/// Ids and values of `item` bytes under new ids; nothing beyond a window is written.
template <typename T>
void test_relabel(int64_t num_src, int64_t num_dst, int64_t num_edges, int64_t item, const Cuts& cuts) {
  const auto edges = random_edges(num_src, num_dst, num_edges, 11);
  const PlainCsc csc = grouped(widened(edges.dst), widened(edges.src), num_dst);
  const auto columns = random_permutation<T>(num_dst, 1), sources = random_permutation<T>(num_src, 2);
  const std::vector<char> values(static_cast<size_t>(num_edges * item), 'v');
  check_threads([&](int threads) {
    const Buffer<int64_t> made = relabel_indptr(csc.indptr, span_of(columns), threads);
    const std::span<const int64_t> indptr = made.span();
    std::vector<int32_t> all;
    for (int64_t first = 0; first < num_edges; first += cuts.window) {
      const int64_t end = std::min(num_edges, first + cuts.window), count = end - first;
      std::vector<int32_t> ids(static_cast<size_t>(count) + 1, -7);
      std::vector<char> data(static_cast<size_t>(count * item) + 1, 'x');
      const auto low = std::upper_bound(indptr.begin(), indptr.end(), first) - indptr.begin() - 1;
      const auto high = std::lower_bound(indptr.begin(), indptr.end(), end) - indptr.begin();
      const auto starts = indptr.subspan(static_cast<size_t>(low), static_cast<size_t>(high - low));
      for (int64_t k = 0; k < num_edges; k += cuts.chunk) {
        const OldEntries part{csc.indptr, span_of(columns), k, std::min(num_edges, k + cuts.chunk)};
        place_indices({csc.indices.data() + k, part.end - k, false}, num_src, part,
                      {first, end, low, starts, ids.data()}, threads);
        place_values(values.data() + k * item, item, part, {first, end, low, starts, data.data()}, threads);
      }
      for (int64_t at = 0; at < num_src; at += cuts.slice) {
        const IdSpan slice{sources.data() + at, std::min(cuts.slice, num_src - at), sizeof(T) == 8};
        rename_sources(ids.data(), count, {slice, at, num_src}, threads);
      }
      CHECK(ids.back() == -7 && data.back() == 'x' && std::count(data.begin(), data.end(), 'v') == count * item);
      all.insert(all.end(), ids.begin(), ids.end() - 1);
    }
    return all;
  });
}

void test_gather(int64_t row_bytes, int64_t stride) {
  const int64_t rows = 40, wanted = 100;
  std::mt19937_64 random(16);
  std::vector<std::byte> table(static_cast<size_t>(rows * row_bytes));
  for (auto& b : table) b = static_cast<std::byte>(random());
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < wanted; ++i) ids.push_back(static_cast<int64_t>(random() % rows));
  check_threads([&](int threads) {
    std::vector<std::byte> out(static_cast<size_t>(wanted * stride), std::byte{0xee});
    gather_rows({table.data(), rows, row_bytes}, span_of(ids), {out.data(), wanted, stride, row_bytes}, threads);
    return out;
  });
}

template <typename T>
void test_sums(int64_t num_rows, int64_t num_nodes, int64_t num_edges, int64_t dim) {
  const auto edges = random_edges<T>(num_rows, num_nodes, num_edges, 5);
  auto nodes = edges.dst;
  std::sort(nodes.begin(), nodes.end());
  std::vector<float> table(static_cast<size_t>(num_rows * dim));
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<float>(i % 97) / 7.0F;
  check_threads([&](int threads) {
    std::vector<float> total(static_cast<size_t>(num_nodes * dim));
    std::vector<int64_t> degree(static_cast<size_t>(num_nodes));
    add_rows({table.data(), num_rows, dim, NumberKind::kFloat32}, span_of(nodes), span_of(edges.src),
             {total.data(), degree.data(), num_nodes}, threads);
    return std::pair{total, degree};
  });
}

void test_graph(int64_t num_src, int64_t num_edges) {
  const auto edges = random_edges(num_src, num_src, num_edges, 5);
  check_threads([&](int threads) { return copied(out_degrees(span_of(edges.src), num_src, threads)); });
  PlainCsc csc = grouped(widened(edges.dst), widened(edges.src), num_src);
  for (const int threads : kThreads) check_csc(csc.view(), num_src, threads);
  csc.indices[77] = csc.indices[400] = -5;
  for (const int threads : kThreads)
    check_refused("indices[77] is -5, outside 0..", [&] { check_csc(csc.view(), num_src, threads); });
}

/// Edges to CSC in chunks; positions of the edges go along as the kernel numbers them.
void test_scatter(int64_t nodes, int64_t num_edges, int64_t chunk, int shift, int64_t num_src) {
  const auto edges = random_edges(nodes, nodes, num_edges, 2);
  const BucketGrid grid{nodes, shift};
  const auto buckets = static_cast<size_t>(grid.num_buckets());
  const int64_t record = scattered_bytes(num_src);
  check_threads([&](int threads) {
    Buffer<std::byte> memory(num_edges * (record + 8) + (num_edges / chunk + 1) * 64);
    std::vector<int64_t> counts, places;
    int64_t at = 0;
    for (int64_t k = 0; k < num_edges; k += chunk) {
      const int64_t count = std::min(num_edges - k, chunk);
      const IdView src{edges.src.data() + k, count, 4, false}, dst{edges.dst.data() + k, count, 4, false};
      const auto by_thread = count_buckets(dst, k, grid, threads);
      counts.resize(counts.size() + buckets, 0);
      for (size_t i = 0; i < by_thread.size(); ++i) counts[counts.size() - buckets + i % buckets] += by_thread[i];
      std::vector<std::span<std::byte>> parts;
      for (const int64_t width : {record, int64_t{8}}) {
        const int64_t bytes = round_up(count * width, 16);
        places.push_back(at);
        parts.push_back(memory.span().subspan(static_cast<size_t>(at), static_cast<size_t>(bytes)));
        at += bytes;
      }
      scatter_edges({src, dst, k, {{}}}, num_src, grid, by_thread, 0, parts, threads);
    }
    std::vector<int64_t> indptr(static_cast<size_t>(nodes)), positions(static_cast<size_t>(num_edges));
    std::vector<std::byte> ids(static_cast<size_t>(num_edges * record / 2));
    const int64_t items[] = {8};
    const std::span<std::byte> outs[] = {ids, std::as_writable_bytes(std::span(positions))};
    sort_runs({memory.span(), places, counts, items}, grid, num_src, 0, indptr, outs, threads);
    return std::tuple{indptr, positions, ids};
  });
}

/// Positions in 64 bits, too, which only keys of more memory than a test has would take.
void test_key_parts(int64_t count) {
  std::mt19937_64 random(static_cast<uint64_t>(count));
  const std::vector<int64_t> bounds{std::numeric_limits<int64_t>::min(), -1, 0, 1, int64_t{1} << 40,
                                    std::numeric_limits<int64_t>::max()};
  std::vector<int64_t> keys;
  for (int64_t k = 0; k < count; ++k)
    keys.push_back(std::min(static_cast<int64_t>(random()) >> (random() % 64), bounds.back() - 1));
  const auto plain = [](const KeyParts& parts) {
    const auto order = std::visit([](const auto& each) { return widened(copied(each)); }, parts.order);
    return std::pair{order, copied(parts.counts)};
  };
  check_threads([&](int threads) {
    const KeyParts narrow = partition_keys(span_of(keys), bounds, threads);
    const KeyParts wide = partition_keys(span_of(keys), bounds, threads, count);
    CHECK(narrow.order.index() == 0 && wide.order.index() == 1 && plain(narrow) == plain(wide));
    return plain(narrow);
  });
}

/// Columns of up to 40 weights, some empty and some of zeros alone; a column by itself gives the same sums.
template <typename T>
void test_cumulative_weights(int64_t columns) {
  std::mt19937_64 random(1);
  std::vector<int64_t> indptr{0};
  std::vector<T> weights;
  for (int64_t v = 0; v < columns; ++v) {
    for (uint64_t e = v % 9 == 4 ? 0 : random() % 40; e > 0; --e)
      weights.push_back(v % 7 == 3 ? T{0} : static_cast<T>(std::pow(random() % 800 + (e == 1), 3)));
    indptr.push_back(static_cast<int64_t>(weights.size()));
  }
  const auto sums = [&](const std::vector<int64_t>& begins, int64_t first, int threads) {
    RelationView relation;
    relation.indptr = begins.data();
    relation.indices.size = begins.back();  // the sums never read its indices
    relation.weights = {weights.data() + first, begins.back(), sizeof(T) == 8};
    return copied(cumulative_weights(relation, static_cast<int64_t>(begins.size()) - 1, "relation 0", threads));
  };
  check_threads([&](int threads) { return sums(indptr, 0, threads); });
  const auto all = sums(indptr, 0, 1);
  for (size_t v = 0; v < static_cast<size_t>(columns); v += 16)
    if (const int64_t begin = indptr[v], degree = indptr[v + 1] - begin; degree > 0 && v % 7 != 3) {
      const auto alone = sums({0, degree}, begin, 1);
      CHECK(std::equal(alone.begin(), alone.end(), all.begin() + begin));
    }
}

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

void test_scores(const Problem& p) {
  check_threads([&](int threads) {
    const auto found =
        reverse_pagerank(p.relations, p.num_nodes, p.views, p.views, {.max_sweeps = 4, .threads = threads});
    return std::pair{found.residual, flat(found.scores)};
  });
  const std::vector<std::vector<int64_t>> fanouts{std::vector<int64_t>(p.relations.size(), 2),
                                                  std::vector<int64_t>(p.relations.size(), -1)};
  for (const bool only_new : {false, true})
    check_threads([&](int threads) {
      const auto found =
          inclusion_probability(p.relations, p.num_nodes, p.views, fanouts, {only_new, !only_new, threads});
      return std::pair{flat(found.found), flat(found.reads)};
    });
}

}  // namespace

int main() {
  test_sums<int32_t>(100, 7, 5000, 5);
  test_sums<int64_t>(50, 3000, 20000, 33);
  test_sums<int64_t>(9, 2, 1000, 600);
  test_graph(1000, 5000);
  test_graph(400000, 5000);
  for (const int64_t num_src : {int64_t{200}, int64_t{1} << 33}) {
    test_scatter(200, 5000, 5000, 3, num_src);
    test_scatter(200, 5000, 777, 0, num_src);
    test_scatter(200, 5000, 64, 8, num_src);
  }
  test_key_parts(60000);
  test_cumulative_weights<float>(9000);
  test_cumulative_weights<double>(9000);
  test_relabel<int64_t>(7, 3000, 20000, 8, {20000, 20000, 7});
  test_relabel<int32_t>(5000, 4000, 300000, 4, {300000, 300000, 5000});
  for (const int64_t item : {1, 4, 8, 12}) {
    test_relabel<int32_t>(300, 200, 4000, item, {700, 900, 300});
    test_relabel<int64_t>(30, 2000, 3000, item, {5000, 77, 30});
    test_relabel<int32_t>(300, 200, 4000, item, {3000, 900, 130});
  }
  std::mt19937_64 random(13);
  std::vector<double> scores(20000);
  for (double& score : scores) score = static_cast<double>(random() % 7000) - 3000;
  check_threads([&](int threads) { return copied(std::get<Buffer<int32_t>>(sort_by_score(scores, threads))); });
  test_gather(24, 24);
  test_gather(1000, 1024);
  for (const auto& problem : {Problem({1000}, {{0, 0}}, 20000), Problem({300000}, {{0, 0}}, 30000),
                              Problem({300, 70000, 0}, {{0, 1}, {1, 0}, {1, 1}, {1, 0}}, 5000)})
    test_scores(problem);
  std::cout << "test_threads: ok\n";
  return 0;
}
