// Checks of adjacency that came from outside, which throw at the first fault in memory order, whatever the number of
// threads, and out-degrees: batches of ids are partitioned, so that the counters of a bucket fit the private cache and
// each has one owner. Memory of out-degrees: 4 bytes for each of at most 2^25 ids besides the result.
#include <numeric>
#include <tiering/graph.hpp>
#include <tiering/line_writer.hpp>
#include <tiering/scan_columns.hpp>

namespace tiering {
namespace {

constexpr int64_t kBatchIds = int64_t{1} << 25, kWantedBuckets = 256, kOrderedLists = 256;
constexpr int kCounterBits = 17;  // 2^17 counters of 8 bytes: half of a 2 MiB private cache

/// Counts the ids [first, last).
template <typename T>
void count_batch(std::span<const T> indices, int64_t first, int64_t last, BucketGrid grid, int threads,
                 Buffer<int64_t>& degrees) {
  const auto mask = static_cast<uint32_t>((int64_t{1} << grid.shift) - 1);
  const auto found = bucket_records<uint32_t>(  // ids within their bucket
      last - first, grid.num_buckets(), threads, [&](int64_t begin, int64_t end, auto put) {
        scan_indices(indices.data(), grid.num_keys, first + begin, first + end,
                     [=, shift = grid.shift](int64_t id) { put(id >> shift, static_cast<uint32_t>(id) & mask); });
      });
  std::vector<const uint32_t*> ends{found.records.data()};
  for (const int64_t count : found.counts.span()) ends.push_back(ends.back() + count);
  for_blocks(threads, grid.num_buckets(), [&](int64_t bucket) {
    int64_t* const counters = degrees.data() + grid.first_key(bucket);
    for (const uint32_t* local = ends[bucket]; local != ends[bucket + 1]; ++local) ++counters[*local];
  });
}

}  // namespace

void check_indptr(std::span<const int64_t> indptr, int64_t num_indices, const std::string& name, int threads) {
  TIERING_EXPECT(!indptr.empty(), name + " is empty: it needs one entry more than there are columns");
  TIERING_EXPECT(indptr[0] == 0, name, " begins with ", indptr[0], ", expected 0");
  for_cuts(threads, static_cast<int64_t>(indptr.size()) - 1, [&](int64_t begin, int64_t end) {
    for (auto v = static_cast<size_t>(begin); v < static_cast<size_t>(end); ++v)
      TIERING_EXPECT(indptr[v] <= indptr[v + 1], name, " decreases from ", indptr[v], " at ", v, " to ", indptr[v + 1],
                     " at ", v + 1);
  });
  TIERING_EXPECT(indptr.back() == num_indices, name, " ends at ", indptr.back(), " but there are ", num_indices,
                 " indices");
}

void check_csc(const CscView& csc, int64_t num_src, int threads) {
  check_indptr(csc, threads);
  csc.indices.visit([&](const auto& indices) {
    for_cuts(threads, csc.num_edges(),
             [&](int64_t begin, int64_t end) { scan_indices(indices.data(), num_src, begin, end, [](int64_t) {}); });
  });
}

Buffer<int64_t> order_lists(std::span<const int64_t> keys, std::span<const int64_t> indptr, int threads) {
  check_indptr(indptr, static_cast<int64_t>(keys.size()), "indptr", threads);
  Buffer<int64_t> order(static_cast<int64_t>(keys.size()));
  const auto lists = static_cast<int64_t>(indptr.size()) - 1;
  const auto earlier = [key = keys.data()](int64_t a, int64_t b) {
    return key[a] < key[b] || (key[a] == key[b] && a < b);
  };
  for_ranges(threads, 0, lists, kOrderedLists, [&](int64_t first_list, int64_t end_list) {
    for (int64_t v = first_list; v < end_list; ++v) {
      const int64_t first = indptr[v];
      int64_t *const begin = order.data() + first, *const end = order.data() + indptr[static_cast<size_t>(v) + 1];
      std::iota(begin, end, first);
      std::sort(begin, end, earlier);
    }
  });
  return order;
}

Buffer<int64_t> out_degrees(const IdSpan& indices, int64_t num_src, int threads) {
  Buffer<int64_t> degrees(num_src);
  for_cuts(threads, num_src,
           [&](int64_t begin, int64_t end) { std::fill(degrees.data() + begin, degrees.data() + end, 0); });
  const BucketGrid grid = choose_grid(num_src, kWantedBuckets, kCounterBits);
  indices.visit([&](const auto& ids) {
    for (int64_t first = 0; first < indices.size; first += kBatchIds)
      count_batch(ids, first, std::min(indices.size, first + kBatchIds), grid, threads, degrees);
  });
  return degrees;
}

}  // namespace tiering
