// Out-degrees: how often each id stands in `indices`.
//
// Approach:   batches of edges are partitioned by id (partition.hpp) and counted bucket by bucket, so that
//             the counters in use fit the private cache and every counter has one owner.
// Memory:     at most 2^25 records of 8 bytes besides the result, whatever the number of edges or threads.
#include <algorithm>
#include <tiering/graph.hpp>
#include <tiering/partition.hpp>
#include <tiering/scan_columns.hpp>

namespace tiering {
namespace {

constexpr int64_t kBatchEdges = int64_t{1} << 25;
constexpr int64_t kWantedBuckets = 256;
constexpr int kCounterBits = 17;  // 2^17 counters of 8 bytes: half of a 2 MiB private cache

struct alignas(8) IdRecord {
  int64_t id;
};

template <typename T>
void count_batch(std::span<const T> indices, int64_t first, int64_t last, BucketGrid grid, int threads,
                 Buffer<int64_t>& degrees) {
  auto ids = [&](int64_t begin, int64_t end, auto&& f) {
    scan_indices(indices, grid.num_keys, first + begin, first + end, f);
  };
  const auto partition = partition_by_key<IdRecord>(
      last - first, grid, threads, ids, [&](int64_t begin, int64_t end, auto&& put) {
        for (int64_t k = first + begin; k < first + end; ++k)
          put(indices[static_cast<size_t>(k)], IdRecord{indices[static_cast<size_t>(k)]});
      });
  for_blocks(threads, grid.num_buckets(), [&](int64_t bucket) {
    for (int c = 0; c < partition.chunks(); ++c)
      for (const auto& record : partition.run(bucket, c)) ++degrees[record.id];
  });
}

}  // namespace

Buffer<int64_t> out_degrees(const IdSpan& indices, int64_t num_src, int threads) {
  Buffer<int64_t> degrees(num_src);
  run_team(threads, [&](int t) {
    const auto [begin, end] = even_cut(num_src, threads, t);
    std::fill(degrees.data() + begin, degrees.data() + end, 0);
  });
  const BucketGrid grid = choose_grid(num_src, kWantedBuckets, kCounterBits);
  indices.visit([&](const auto& ids) {
    for (int64_t first = 0; first < indices.size; first += kBatchEdges)
      count_batch(ids, first, std::min(indices.size, first + kBatchEdges), grid, threads, degrees);
  });
  return degrees;
}

}  // namespace tiering
