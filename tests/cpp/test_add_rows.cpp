// Sums of rows by node by several threads, under TSan: the same bytes as by one. tests/native compares them with a loop.
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
  const NumberRows rows{table.data(), num_rows, dim, NumberKind::kFloat32};
  const auto sums = [&](int threads) {
    std::vector<float> total(static_cast<size_t>(num_nodes * dim));
    std::vector<int64_t> degree(static_cast<size_t>(num_nodes));
    add_rows(rows, span_of(nodes), span_of(edges.src), {total.data(), degree.data(), num_nodes}, threads);
    return std::pair{total, degree};
  };
  for (const int threads : kThreads) CHECK(sums(threads) == sums(1));
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
