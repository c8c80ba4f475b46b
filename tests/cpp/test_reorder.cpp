// Ordering and moving by several threads, under TSan: the same bytes as by one. tests/native compares them with other
// methods.
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
    gather_rows({table.data(), rows, row_bytes}, span_of(ids), {out.data(), wanted, stride}, threads);
    return out;
  });
}

}  // namespace

int main() {
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
  std::cout << "test_reorder: ok\n";
  return 0;
}
