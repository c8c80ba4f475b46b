// Adjacency kernels against stable sorts and plain counting.

#include "check.hpp"
#include "graphs.hpp"

using namespace tiering;
using namespace tiering::test;

namespace {

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
  test_out_degrees(2, 1);
  test_out_degrees(1000, 5000);
  test_out_degrees(400000, 5000);
  test_check_csc();
  std::cout << "test_graph: ok\n";
  return 0;
}
