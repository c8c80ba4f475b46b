// Sums of rows by node, against a loop over the edges.
#include <bit>
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

/// 1.5, the least number of all, and infinity, in 16 bits.
void test_halves() {
  const std::vector<uint16_t> half{0x3e00, 0x0001, 0xfc00}, brain{0x3fc0, 0x0001, 0xff80};
  const std::vector<int32_t> ids{0, 1, 2};
  const float infinity = std::numeric_limits<float>::infinity();
  for (const auto& [bits, kind, least] :
       {std::tuple{half, NumberKind::kFloat16, 0x1p-24f}, {brain, NumberKind::kBFloat16, 0x1p-133f}}) {
    std::vector<float> total(3);
    std::vector<int64_t> degree(3);
    add_rows({bits.data(), 3, 1, kind}, span_of(ids), span_of(ids), {total.data(), degree.data(), 3}, 2);
    CHECK((total == std::vector<float>{1.5f, least, -infinity}));
  }
}

void test_refusals() {
  const std::vector<float> table(10);
  const std::vector<int64_t> rows{0, 1, 4}, beyond{0, 5, 1}, nodes{0, 0, 2}, falling{1, 0, 2}, outside{0, 1, 3};
  std::vector<float> total(6);
  std::vector<int64_t> degree(3);
  const auto add = [&](const auto& to, const auto& from, int threads) {
    add_rows({table.data(), 5, 2, NumberKind::kFloat32}, span_of(to), span_of(from), {total.data(), degree.data(), 3},
             threads);
  };
  for (const int threads : kThreads) {
    check_refused("neighbours[1] is 5, outside the table's 5 rows", [&] { add(nodes, beyond, threads); });
    check_refused("nodes[1] is 0, behind 1", [&] { add(falling, rows, threads); });
    check_refused("nodes[2] is 3, outside the 3 nodes", [&] { add(outside, rows, threads); });
    check_refused("as wide as", [&] { add(nodes, std::vector<int32_t>{0, 1, 2}, threads); });
    check_refused("found 2", [&] { add(nodes, std::vector<int64_t>{0, 1}, threads); });
  }
  CHECK(degree == std::vector<int64_t>(3));
}

}  // namespace

int main() {
  test_sums<int32_t>(1, 1, 0, 3);
  test_sums<int32_t>(100, 7, 5000, 5);
  test_sums<int64_t>(50, 3000, 20000, 33);
  test_sums<int64_t>(9, 2, 1000, 600);
  test_halves();
  test_refusals();
  std::cout << "test_add_rows: ok\n";
  return 0;
}
