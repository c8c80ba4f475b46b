// Edge list to CSC in pieces, by scattering and sorting buckets, against a stable sort.
#include <algorithm>
#include <cstring>

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

/// Positions of the edges go along twice: as the kernel numbers them, and as values of 3 * 8 bytes.
void test_scatter(int64_t nodes, int64_t num_edges, int64_t chunk, int shift, int64_t num_src) {
  const auto edges = random_edges(nodes, nodes, num_edges, 2);
  const PlainCsc expected = grouped(widened(edges.dst), widened(edges.src), nodes);
  const BucketGrid grid{nodes, shift};
  const auto buckets = static_cast<size_t>(grid.num_buckets());
  const int64_t record = scattered_bytes(num_src), widths[] = {record, 8, 24};
  std::vector<int64_t> triples(static_cast<size_t>(num_edges) * 3);
  for (size_t k = 0; k < triples.size(); ++k) triples[k] = static_cast<int64_t>(k / 3);
  for (const int threads : kThreads) {
    Buffer<std::byte> memory(num_edges * (record + 32) + (num_edges / chunk + 1) * 64);
    std::vector<int64_t> counts, places;
    int64_t at = 0;
    for (int64_t k = 0; k < num_edges; k += chunk) {
      const int64_t stop = std::min(num_edges, k + chunk);
      const auto by_thread = count_buckets(part_of(edges.dst, k, stop), k, grid, threads);
      counts.resize(counts.size() + buckets, 0);
      for (size_t i = 0; i < by_thread.size(); ++i) counts[counts.size() - buckets + i % buckets] += by_thread[i];
      std::vector<std::span<std::byte>> parts;
      for (const int64_t width : widths) {
        const int64_t bytes = ((stop - k) * width + 15) / 16 * 16;
        places.push_back(at);
        parts.push_back(memory.span().subspan(static_cast<size_t>(at), static_cast<size_t>(bytes)));
        at += bytes;
      }
      const auto* const values = reinterpret_cast<const std::byte*>(triples.data() + 3 * k);
      scatter_edges({part_of(edges.src, k, stop), part_of(edges.dst, k, stop), k, {{}, {values, 24, 24}}}, num_src,
                    grid, by_thread, 0, parts, threads);
    }
    const auto entries = static_cast<size_t>(num_edges);
    std::vector<int64_t> indptr(static_cast<size_t>(nodes)), positions(entries), thrice(entries * 3);
    std::vector<std::byte> ids(entries * static_cast<size_t>(record) / 2);
    const int64_t items[] = {8, 24};
    const std::span<std::byte> outs[] = {ids, std::as_writable_bytes(std::span(positions)),
                                         std::as_writable_bytes(std::span(thrice))};
    sort_runs({memory.span(), places, counts, items}, grid, num_src, 0, indptr, outs, threads);
    indptr.push_back(num_edges);
    CHECK(indptr == expected.indptr);
    CHECK(positions == expected.positions);
    for (size_t k = 0; k < entries; ++k) {
      int64_t id = 0;
      std::memcpy(&id, ids.data() + k * static_cast<size_t>(record) / 2, static_cast<size_t>(record) / 2);
      CHECK(id == expected.indices[k]);
      for (size_t i = 0; i < 3; ++i) CHECK(thrice[3 * k + i] == positions[k]);
    }
  }
}

}  // namespace

int main() {
  for (const int64_t num_src : {int64_t{200}, int64_t{1} << 33}) {
    test_scatter(200, 5000, 5000, 3, num_src);
    test_scatter(200, 5000, 777, 0, num_src);
    test_scatter(200, 5000, 64, 8, num_src);
    test_scatter(1, 100, 40, 0, num_src);
  }
  std::cout << "test_bucket_sort: ok\n";
  return 0;
}
