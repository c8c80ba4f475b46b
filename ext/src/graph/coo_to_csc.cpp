// Edge list to CSC in memory: the steps of bucket_sort.cpp with one chunk, which is all edges.
#include <tiering/errors.hpp>
#include <tiering/graph.hpp>

namespace tiering {
namespace {

/// Buckets of about 2^17 edges, or 2^16 columns where edges are few: both fit a private cache of 2 MiB.
BucketGrid edge_grid(int64_t num_columns, int64_t num_edges) {
  constexpr int kBucketEdgeBits = 17, kMaxShift = 16;
  return choose_grid(num_columns, (num_edges >> kBucketEdgeBits) + 1, kMaxShift);
}

/// Edges of each bucket, over all threads.
std::vector<int64_t> sum_threads(const std::vector<int64_t>& counts, size_t num_buckets) {
  std::vector<int64_t> sums(num_buckets, 0);
  for (size_t i = 0; i < counts.size(); ++i) sums[i % num_buckets] += counts[i];
  return sums;
}

template <typename T>
std::span<std::byte> bytes_of(Buffer<T>& buffer) {
  return std::as_writable_bytes(buffer.span());
}

}  // namespace

CscArrays coo_to_csc(const IdView& src, const IdView& dst, int64_t num_src, int64_t num_dst, int threads,
                     bool want_positions) {
  TIERING_EXPECT(src.size == dst.size, "src has " + std::to_string(src.size) + " entries, dst has " +
                                           std::to_string(dst.size) + ": one of each per edge is needed");
  TIERING_EXPECT(num_src >= 0 && num_dst >= 0, "numbers of nodes must not be negative");
  constexpr int64_t kAlignment = 16;
  const int64_t edges = dst.size, record_bytes = (edges * scattered_bytes(num_src) + kAlignment - 1) & -kAlignment;
  const BucketGrid grid = edge_grid(num_dst, edges);
  const std::vector<int64_t> counts = count_buckets(dst, 0, grid, threads);
  CscArrays out{Buffer<int64_t>(num_dst + 1), {}, Buffer<int64_t>(want_positions ? edges : 0)};
  out.indptr[num_dst] = edges;
  out.indices = needs_wide_ids(num_src) ? IdBuffer(Buffer<int64_t>(edges)) : IdBuffer(Buffer<int32_t>(edges));
  if (num_dst == 0) return out;

  Buffer<std::byte> memory(record_bytes + (want_positions ? edges * static_cast<int64_t>(sizeof(int64_t)) : 0));
  std::vector parts{memory.span().first(static_cast<size_t>(record_bytes))};
  std::vector outs{std::visit([](auto& ids) { return bytes_of(ids); }, out.indices)};
  std::vector<int64_t> places{0}, item_bytes;
  EdgeChunk chunk{src, dst, 0, {}};
  if (want_positions) {
    chunk.values.emplace_back();
    parts.push_back(memory.span().subspan(static_cast<size_t>(record_bytes)));
    outs.push_back(bytes_of(out.positions));
    places.push_back(record_bytes);
    item_bytes.push_back(sizeof(int64_t));
  }
  scatter_edges(chunk, num_src, grid, counts, 0, parts, threads);
  const auto bucket_counts = sum_threads(counts, static_cast<size_t>(grid.num_buckets()));
  sort_runs({memory.span(), places, bucket_counts, item_bytes}, grid, num_src, 0,
            out.indptr.span().first(static_cast<size_t>(num_dst)), outs, threads);
  return out;
}

}  // namespace tiering
