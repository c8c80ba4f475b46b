// Edge list to CSC in pieces, by windows and by scattering, against a stable sort.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "check.hpp"
#include "graphs.hpp"

using namespace tiering;
using namespace tiering::test;

namespace {

template <typename T>
IdView part_of(const std::vector<T>& ids, int64_t begin, int64_t end) {
  const IdView whole = view_of(ids);
  return {static_cast<const char*>(whole.data) + begin * whole.stride_bytes, end - begin, whole.stride_bytes,
          whole.wide};
}

void test_windows(int64_t nodes, int64_t num_edges, int64_t chunk, int64_t window) {
  const auto edges = random_edges<int64_t>(nodes, nodes, num_edges, 1);
  const PlainCsc expected = grouped(widened(edges.dst), widened(edges.src), nodes);
  for (const int threads : kThreads) {
    std::vector<int64_t> indptr(static_cast<size_t>(nodes) + 1, 0);
    for (int64_t k = 0; k < num_edges; k += chunk)
      count_destinations(part_of(edges.dst, k, std::min(num_edges, k + chunk)), k,
                         std::span(indptr).subspan(1), threads);
    std::partial_sum(indptr.begin(), indptr.end(), indptr.begin());
    CHECK(indptr == expected.indptr);
    std::vector<int32_t> ids(static_cast<size_t>(num_edges));
    std::vector<int64_t> values(ids.size()), positions(ids.size());
    std::iota(positions.begin(), positions.end(), 0);
    for (int64_t first = 0; first < num_edges; first += window) {
      const int64_t end = std::min(num_edges, first + window);
      std::vector<int64_t> cursors(indptr.begin(), indptr.end() - 1), same = cursors;
      for (int64_t k = 0; k < num_edges; k += chunk) {
        const int64_t stop = std::min(num_edges, k + chunk);
        const auto src = part_of(edges.src, k, stop), dst = part_of(edges.dst, k, stop);
        place_sources(src, dst, k, nodes, {first, end, 0, cursors, ids.data() + first}, threads);
        place_edge_data(positions.data() + k, 8, stop - k, dst, {first, end, 0, same, values.data() + first},
                        threads);
      }
    }
    CHECK(ids == expected.indices);
    CHECK(values == expected.positions);
  }
}

void test_scatter(int64_t nodes, int64_t num_edges, int64_t chunk, int shift, int64_t num_src) {
  const auto edges = random_edges(nodes, nodes, num_edges, 2);
  const PlainCsc expected = grouped(widened(edges.dst), widened(edges.src), nodes);
  const BucketGrid grid{nodes, shift};
  const int64_t buckets = grid.num_buckets(), split = buckets / 3;
  const auto record = static_cast<size_t>(scattered_bytes(num_src));
  for (const int threads : kThreads) {
    std::vector<Buffer<std::byte>> low, high;  // aligned
    std::vector<int64_t> counts;
    std::vector<std::vector<std::byte>> runs;
    for (int64_t k = 0; k < num_edges; k += chunk) {
      const int64_t stop = std::min(num_edges, k + chunk);
      const auto src = part_of(edges.src, k, stop), dst = part_of(edges.dst, k, stop);
      const auto found = count_buckets(dst, k, grid, threads);
      int64_t sizes[2] = {0, 0};
      std::vector<int64_t> totals(static_cast<size_t>(buckets), 0);
      for (size_t i = 0; i < found.size(); ++i) totals[i % totals.size()] += found[i];
      for (int64_t b = 0; b < buckets; ++b) sizes[b >= split] += totals[static_cast<size_t>(b)];
      Buffer<std::byte> first(sizes[0] * scattered_bytes(num_src)),
          second(sizes[1] * scattered_bytes(num_src));
      scatter_edges(src, dst, k, num_src, grid, found, {0, split, first.span(), second.span()}, threads);
      auto& run = runs.emplace_back(first.span().begin(), first.span().end());
      run.insert(run.end(), second.span().begin(), second.span().end());
      counts.insert(counts.end(), totals.begin(), totals.end());
    }
    ScatteredRuns scattered{{runs.begin(), runs.end()}, counts};
    std::vector<int64_t> indptr(static_cast<size_t>(nodes));
    std::vector<std::byte> ids(static_cast<size_t>(num_edges) * record / 2);
    sort_runs(scattered, grid, num_src, 0, indptr, ids, threads);
    indptr.push_back(num_edges);
    CHECK(indptr == expected.indptr);
    for (size_t k = 0; k < expected.indices.size(); ++k) {
      int64_t id = 0;
      std::memcpy(&id, ids.data() + k * record / 2, record / 2);
      CHECK(id == expected.indices[k]);
    }
  }
}

void test_refusals() {
  const std::vector<int64_t> src{0, 9}, dst{1, 2};
  const BucketGrid grid{3, 0};
  check_refused("edge 11: destination id 2 is outside 0..1",
                [&] { count_buckets(view_of(dst), 10, {2, 0}, 2); });
  const auto counts = count_buckets(view_of(dst), 0, grid, 1);
  Buffer<std::byte> memory(64);
  check_refused("edge 11: source id 9", [&] {
    scatter_edges(view_of(src), view_of(dst), 10, 9, grid, counts, {0, 0, {}, memory.span()}, 1);
  });
  check_refused("too small", [&] {
    scatter_edges(view_of(src), view_of(dst), 10, 10, grid, counts, {0, 0, {}, memory.span().first(8)}, 1);
  });
}

}  // namespace

int main() {
  test_windows(50, 3000, 3000, 3000);
  test_windows(50, 3000, 700, 450);
  test_windows(3, 500, 33, 7);
  for (const int64_t num_src : {int64_t{200}, int64_t{1} << 33}) {
    test_scatter(200, 5000, 5000, 3, num_src);
    test_scatter(200, 5000, 777, 0, num_src);
    test_scatter(200, 5000, 64, 8, num_src);
    test_scatter(1, 100, 40, 0, num_src);
  }
  test_refusals();
  std::cout << "test_external: ok\n";
  return 0;
}
