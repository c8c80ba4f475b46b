// Out-degrees: how often each id stands in `indices`.
//
// Approach:   batches of edges are partitioned by id (partition.hpp) and counted bucket by bucket, so that
//             the counters in use fit the private cache and every counter has one owner.
// Memory:     at most 2^25 records of 4 bytes besides the result, whatever the number of edges or threads.
#include <algorithm>
#include <tiering/graph.hpp>
#include <tiering/scan_columns.hpp>

namespace tiering {
namespace {

constexpr int64_t kBatchEdges = int64_t{1} << 25;
constexpr int64_t kWantedBuckets = 256;
constexpr int kCounterBits = 17;  // 2^17 counters of 8 bytes: half of a 2 MiB private cache

template <typename T>
void count_batch(std::span<const T> indices, int64_t first, int64_t last, BucketGrid grid, int threads,
                 Buffer<int64_t>& degrees) {
  auto ids = [&](int64_t begin, int64_t end, auto&& f) {
    scan_indices(indices, grid.num_keys, first + begin, first + end, f);
  };
  const uint32_t local_mask = static_cast<uint32_t>((int64_t{1} << grid.shift) - 1);
  const auto partition =
      partition_by_key<uint32_t>(last - first, grid, threads, ids, [&](int, int64_t begin, int64_t end, auto& writer) {
        for (auto k = static_cast<size_t>(first + begin); k < static_cast<size_t>(first + end); ++k)
          writer.put(indices[k], static_cast<uint32_t>(indices[k]) & local_mask);
      });
  for_blocks(threads, grid.num_buckets(), [&](int64_t bucket) {
    int64_t* counters = degrees.data() + grid.first_key(bucket);
    for (int c = 0; c < partition.chunks(); ++c)
      for (const uint32_t local : partition.run(bucket, c)) ++counters[local];
  });
}

}  // namespace

Buffer<int64_t> out_degrees(const IdSpan& indices, int64_t num_src, int threads) {
  Buffer<int64_t> degrees(num_src);
  for_cuts(threads, num_src,
           [&](int64_t begin, int64_t end) { std::fill(degrees.data() + begin, degrees.data() + end, 0); });
  const BucketGrid grid = choose_grid(num_src, kWantedBuckets, kCounterBits);
  indices.visit([&](const auto& ids) {
    for (int64_t first = 0; first < indices.size; first += kBatchEdges)
      count_batch(ids, first, std::min(indices.size, first + kBatchEdges), grid, threads, degrees);
  });
  return degrees;
}

}  // namespace tiering
