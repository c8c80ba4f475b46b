// Sums of rows by node, against a loop over the edges.
#include <iostream>
#include <tiering/reorder.hpp>

#include "check.hpp"
#include "graphs.hpp"

using namespace tiering;
using namespace tiering::test;

namespace {

template <typename T>
void test_sums(int64_t num_rows, int64_t num_nodes, int64_t num_edges, int64_t dim) {
  const auto edges = random_edges<T>(num_rows, num_nodes, num_edges, 5);
  auto nodes = edges.dst;
  std::sort(nodes.begin(), nodes.end());
  std::mt19937_64 random(6);
  std::vector<float> table(static_cast<size_t>(num_rows * dim));
  for (auto& value : table) value = static_cast<float>(static_cast<double>(random()) / 1e18 - 9.0);
  std::vector<float> expected(static_cast<size_t>(num_nodes * dim));
  std::vector<int64_t> degrees(static_cast<size_t>(num_nodes));
  for (size_t e = 0; e < nodes.size(); ++e) {
    ++degrees[static_cast<size_t>(nodes[e])];
    for (int64_t k = 0; k < dim; ++k)
      expected[static_cast<size_t>(nodes[e] * dim + k)] += table[static_cast<size_t>(edges.src[e] * dim + k)];
  }
  const NumberRows rows{table.data(), num_rows, dim, NumberKind::kFloat32};
  for (const int threads : kThreads) {
    std::vector<float> total(expected.size());
    std::vector<int64_t> degree(degrees.size());
    add_rows(rows, span_of(nodes), span_of(edges.src), {total.data(), degree.data(), num_nodes}, threads);
    CHECK(total == expected);
    CHECK(degree == degrees);
  }
}

}  // namespace

int main() {
  test_sums<int32_t>(1, 1, 0, 3);
  test_sums<int32_t>(100, 7, 5000, 5);
  test_sums<int64_t>(50, 3000, 20000, 33);
  test_sums<int64_t>(9, 2, 1000, 600);
  std::cout << "test_add_rows: ok\n";
  return 0;
}
