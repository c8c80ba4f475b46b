// Adjacency kernels against stable sorts and plain counting.
#include <limits>

#include "check.hpp"
#include "graphs.hpp"

using namespace tiering;
using namespace tiering::test;

namespace {

template <typename T>
void test_coo_to_csc(int64_t num_src, int64_t num_dst, int64_t num_edges) {
  const auto edges = random_edges<T>(num_src, num_dst, num_edges, 1);
  const PlainCsc expected = grouped(widened(edges.dst), widened(edges.src), num_dst);
  for (const int threads : kThreads) {
    const auto found = plain(coo_to_csc(view_of(edges.src), view_of(edges.dst), num_src, num_dst, threads, true));
    CHECK(found == expected);
    auto without = plain(coo_to_csc(view_of(edges.src), view_of(edges.dst), num_src, num_dst, threads, false));
    CHECK(without.positions.empty());
    without.positions = expected.positions;
    CHECK(without == expected);
  }
}

void test_strided_edges() {
  const auto edges = random_edges<int64_t>(50, 60, 1000, 2);
  std::vector<int64_t> pairs;
  for (int64_t k = 0; k < edges.size(); ++k) {
    pairs.push_back(edges.src[static_cast<size_t>(k)]);
    pairs.push_back(edges.dst[static_cast<size_t>(k)]);
  }
  const IdView src{pairs.data(), edges.size(), 16, true}, dst{pairs.data() + 1, edges.size(), 16, true};
  CHECK(plain(coo_to_csc(src, dst, 50, 60, 2, true)) == grouped(widened(edges.dst), widened(edges.src), 60));
}

void test_wide_ids() {
  const int64_t huge = int64_t{1} << 40;
  const std::vector<int64_t> src{huge - 1, 0, 5}, dst{1, 0, 1};
  const auto found = coo_to_csc(view_of(src), view_of(dst), huge, 2, 2, false);
  CHECK((copied(std::get<Buffer<int64_t>>(found.indices)) == std::vector<int64_t>{0, huge - 1, 5}));
  CHECK((copied(found.indptr) == std::vector<int64_t>{0, 1, 3}));
}

void test_first_bad_edge_is_named() {
  auto edges = random_edges(100, 100, 5000, 3);
  edges.src[4321] = 100;
  edges.src[4500] = -1;
  for (const int threads : kThreads) {
    auto convert = [&](int64_t n) { coo_to_csc(view_of(edges.src), view_of(edges.dst), n, n, threads, false); };
    check_refused("edge 4321: source id 100 is outside 0..99", [&] { convert(100); });
    check_refused("edge 0: destination id 50", [&] { convert(0); });
  }
  edges.dst.pop_back();
  check_refused("src has 5000 entries, dst has 4999",
                [&] { coo_to_csc(view_of(edges.src), view_of(edges.dst), 200, 200, 1, false); });
}

void test_transpose(int64_t num_src, int64_t num_dst, int64_t num_edges) {
  const auto edges = random_edges(num_src, num_dst, num_edges, 4);
  const PlainCsc csc = grouped(widened(edges.dst), widened(edges.src), num_dst);
  const PlainCsc expected = grouped(widened(csc.indices), columns_of(csc.view()), num_src);
  for (const int threads : kThreads) CHECK(plain(transpose(csc.view(), num_src, threads, true)) == expected);
}

void test_out_degrees(int64_t num_src, int64_t num_edges) {
  const auto edges = random_edges(num_src, num_src, num_edges, 5);
  std::vector<int64_t> expected(static_cast<size_t>(num_src), 0);
  for (const auto u : edges.src) ++expected[static_cast<size_t>(u)];
  for (const int threads : kThreads) CHECK(copied(out_degrees(span_of(edges.src), num_src, threads)) == expected);
  const int64_t largest = *std::max_element(edges.src.begin(), edges.src.end());
  check_refused("is " + std::to_string(largest) + ", outside 0..",
                [&] { out_degrees(span_of(edges.src), largest, 2); });
}

void test_check_csc() {
  const auto edges = random_edges(30, 40, 500, 6);
  const PlainCsc good = grouped(widened(edges.dst), widened(edges.src), 40);
  for (const int threads : kThreads) {
    auto refused = [&](const std::string& words, const PlainCsc& csc) {
      check_refused(words, [&] { check_csc(csc.view(), 30, threads); });
    };
    check_csc(good.view(), 30, threads);
    PlainCsc bad = good;
    bad.indptr[0] = 1;
    refused("indptr begins with 1, expected 0", bad);
    bad = good;
    bad.indptr[10] = bad.indptr[11] + 1;
    refused("indptr falls from", bad);
    bad = good;
    bad.indptr[40] += 2;
    refused("indptr ends at 502 but there are 500 indices", bad);
    bad = good;
    bad.indices[77] = 30;
    bad.indices[400] = -5;
    refused("indices[77] is 30, outside 0..29", bad);
  }
}

}  // namespace

int main() {
  test_coo_to_csc<int32_t>(1, 1, 0);
  test_coo_to_csc<int32_t>(1, 1, 3);
  test_coo_to_csc<int32_t>(100, 7, 1000);
  test_coo_to_csc<int64_t>(7, 100, 1001);
  test_coo_to_csc<int32_t>(300000, 200001, 5000);  // many buckets, few edges
  test_coo_to_csc<int32_t>(1000, 65537, 300000);   // several buckets
  test_coo_to_csc<int64_t>(65537, 1000, 300000);
  CHECK(plain(coo_to_csc({}, {}, 0, 0, 3, true)).indptr == std::vector<int64_t>{0});
  test_strided_edges();
  test_wide_ids();
  test_first_bad_edge_is_named();
  test_transpose(1, 1, 0);
  test_transpose(100, 7, 1000);
  test_transpose(70000, 300, 200000);
  test_out_degrees(2, 1);
  test_out_degrees(1000, 5000);
  test_out_degrees(400000, 5000);
  test_check_csc();
  std::cout << "test_graph: ok\n";
  return 0;
}
