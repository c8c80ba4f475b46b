// Adjacency kernels against stable sorts and plain counting.

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
    check_csc(good.view(), 30, threads);
    PlainCsc bad = good;
    bad.indices[77] = 30;
    bad.indices[400] = -5;
    check_refused("indices[77] is 30, outside 0..29", [&] { check_csc(bad.view(), 30, threads); });
  }
}

}  // namespace

int main() {
  test_coo_to_csc<int32_t>(1, 1, 0);
  test_coo_to_csc<int32_t>(1, 1, 3);
  test_coo_to_csc<int32_t>(100, 7, 1000);
  test_coo_to_csc<int64_t>(7, 100, 1001);
  test_coo_to_csc<int32_t>(300000, 200001, 5000);  // many buckets, few edges
  test_coo_to_csc<int32_t>(1000, 65537, 140000);   // several buckets
  CHECK(plain(coo_to_csc({}, {}, 0, 0, 3, true)).indptr == std::vector<int64_t>{0});
  test_out_degrees(2, 1);
  test_out_degrees(1000, 5000);
  test_out_degrees(400000, 5000);
  test_check_csc();
  std::cout << "test_graph: ok\n";
  return 0;
}
