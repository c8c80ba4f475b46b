// Ordering and moving, against std::sort, composition and one-by-one copies.
#include <iostream>
#include <tiering/reorder.hpp>

#include "check.hpp"
#include "graphs.hpp"

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

/// A random CSC, where its columns and sources go, and the CSC under new ids: relabel every entry's ends, then
/// group by a stable sort. `positions` says where the new entries stood.
template <typename T>
struct Relabelled {
  Relabelled(int64_t num_src, int64_t num_dst, int64_t num_edges) {
    const auto edges = random_edges(num_src, num_dst, num_edges, 11);
    csc = grouped(widened(edges.dst), widened(edges.src), num_dst);
    columns = random_permutation<T>(num_dst, 1);
    sources = random_permutation<T>(num_src, 2);
    std::vector<int64_t> keys, ids;
    for (const int64_t v : columns_of(csc.view())) keys.push_back(columns[static_cast<size_t>(v)]);
    for (const int64_t u : csc.indices) ids.push_back(sources[static_cast<size_t>(u)]);
    expected = grouped(keys, ids, num_dst);
  }

  PlainCsc csc, expected;
  std::vector<T> columns, sources;
};

/// The graph under new ids, by one chunk and one window.
template <typename T>
PlainCsc relabel(const PlainCsc& csc, const std::vector<T>& columns, const std::vector<T>& sources, int threads) {
  const auto num_src = static_cast<int64_t>(sources.size()), num_edges = static_cast<int64_t>(csc.indices.size());
  const Buffer<int64_t> indptr = relabel_indptr(csc.indptr, span_of(columns), threads);
  PlainCsc made;
  made.indptr.assign(indptr.data(), indptr.data() + indptr.size());
  made.indices.resize(csc.indices.size());
  place_indices({csc.indices.data(), num_edges, false}, num_src, {csc.indptr, span_of(columns), 0, num_edges},
                {0, num_edges, 0, std::span(made.indptr).first(columns.size()), made.indices.data()}, threads);
  rename_sources(made.indices.data(), num_edges, {span_of(sources), 0, num_src}, threads);
  return made;
}

template <typename T>
void test_relabel(int64_t num_src, int64_t num_dst, int64_t num_edges) {
  Relabelled<T> graph(num_src, num_dst, num_edges);
  graph.expected.positions.clear();
  for (const int threads : kThreads) CHECK(relabel(graph.csc, graph.columns, graph.sources, threads) == graph.expected);
}

/// The window of entries [first, end) of the result, and the part of its indptr.
RelabelWindow window_of(const PlainCsc& result, int64_t first, int64_t end, void* out) {
  const auto& indptr = result.indptr;
  const auto low = std::upper_bound(indptr.begin(), indptr.end(), first) - indptr.begin() - 1;
  const auto high = std::lower_bound(indptr.begin(), indptr.end(), end) - indptr.begin();
  return {first, end, low, std::span(indptr).subspan(static_cast<size_t>(low), static_cast<size_t>(high - low)), out};
}

template <typename T>
SourceMap part_of(const std::vector<T>& map, int64_t first, int64_t count) {
  return {{map.data() + first, count, sizeof(T) == 8}, first, static_cast<int64_t>(map.size())};
}

/// Ids and values of `item` bytes, window by window, chunk by chunk, and new ids a slice of the source map at a time;
/// nothing beyond a window is written.
template <typename T>
void test_windows(int64_t num_src, int64_t num_dst, int64_t num_edges, int64_t window, int64_t chunk, int64_t item,
                  int64_t slice) {
  const Relabelled<T> graph(num_src, num_dst, num_edges);
  std::vector<char> values(static_cast<size_t>(num_edges * item));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<char>(i * 31 + i / 251);
  for (const int threads : kThreads)
    for (int64_t first = 0; first < num_edges; first += window) {
      const int64_t end = std::min(num_edges, first + window), count = end - first;
      std::vector<int32_t> ids(static_cast<size_t>(count) + 1, -7);
      std::vector<char> data(static_cast<size_t>(count * item) + 1, 'x');
      for (int64_t k = 0; k < num_edges; k += chunk) {
        const OldEntries part{graph.csc.indptr, span_of(graph.columns), k, std::min(num_edges, k + chunk)};
        place_indices({graph.csc.indices.data() + k, part.end - k, false}, num_src, part,
                      window_of(graph.expected, first, end, ids.data()), threads);
        place_values(values.data() + k * item, item, part, window_of(graph.expected, first, end, data.data()), threads);
      }
      for (int64_t source = 0; source < num_src; source += slice)
        rename_sources(ids.data(), count, part_of(graph.sources, source, std::min(slice, num_src - source)), threads);
      for (int64_t i = 0; i < count; ++i) {
        const auto entry = static_cast<size_t>(first + i), at = static_cast<size_t>(i);
        CHECK(ids[at] == graph.expected.indices[entry]);
        const auto from = values.begin() + graph.expected.positions[entry] * item;
        CHECK(std::equal(from, from + item, data.begin() + i * item));
      }
      CHECK(ids.back() == -7 && data.back() == 'x');
    }
}

void test_sort(const std::vector<double>& scores) {
  std::vector<int32_t> expected(scores.size());
  std::iota(expected.begin(), expected.end(), 0);
  std::sort(expected.begin(), expected.end(), [&](int32_t a, int32_t b) {
    const double x = scores[static_cast<size_t>(a)], y = scores[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  });
  for (const int threads : kThreads)
    CHECK(copied(std::get<Buffer<int32_t>>(sort_by_score(scores, threads))) == expected);
}

void test_gather(int64_t row_bytes, int64_t stride) {
  const int64_t rows = 40, wanted = 100;
  std::mt19937_64 random(16);
  std::vector<std::byte> table(static_cast<size_t>(rows * row_bytes));
  for (auto& b : table) b = static_cast<std::byte>(random());
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < wanted; ++i) ids.push_back(static_cast<int64_t>(random() % rows));
  for (const int threads : kThreads) {
    std::vector<std::byte> out(static_cast<size_t>(wanted * stride), std::byte{0xee});
    gather_rows({table.data(), rows, row_bytes}, span_of(ids), {out.data(), wanted, stride}, threads);
    for (int64_t i = 0; i < wanted; ++i)
      for (int64_t b = 0; b < stride; ++b) {
        const auto found = out[static_cast<size_t>(i * stride + b)];
        CHECK(found == (b < row_bytes ? table[static_cast<size_t>(ids[static_cast<size_t>(i)] * row_bytes + b)]
                                      : std::byte{0xee}));
      }
  }
}

}  // namespace

int main() {
  test_relabel<int64_t>(7, 3000, 20000);
  test_relabel<int32_t>(5000, 4000, 300000);
  for (const int64_t item : {1, 4, 8, 12}) {
    test_windows<int32_t>(300, 200, 4000, 700, 900, item, 300);
    test_windows<int64_t>(30, 2000, 3000, 5000, 77, item, 30);
    test_windows<int32_t>(300, 200, 4000, 3000, 900, item, 130);
  }
  std::mt19937_64 random(13);
  std::vector<double> scores(20000);
  for (double& score : scores) score = static_cast<double>(random() % 7000) - 3000;
  test_sort(scores);
  test_gather(24, 24);
  test_gather(1000, 1024);
  std::cout << "test_reorder: ok\n";
  return 0;
}
