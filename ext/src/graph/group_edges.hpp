// The step that coo_to_csc and transpose share: edges given as (key, id) pairs in some order -> one list
// of ids per key.
//
// Approach:   partition the edges into buckets of consecutive keys (partition.hpp), then a counting sort inside each
//             bucket, whose counters and output fit the private cache.
// Why:        counting straight into num_keys counters costs two cache misses per edge; this costs streaming.
// Memory:     per edge 8 bytes (16 with positions or 64-bit ids, 24 with both) besides the result.
// Parallelism: threads own buckets; the result is the stable grouping, whatever their number.
#pragma once

#include <cstdint>
#include <tiering/graph.hpp>
#include <tiering/partition.hpp>
#include <type_traits>
#include <vector>

namespace tiering {

struct NoPosition {};

template <typename Id, bool kPositions>
struct EdgeRecord {
  uint32_t local;  ///< key - first key of the bucket
  Id id;
  [[no_unique_address]] std::conditional_t<kPositions, int64_t, NoPosition> position;
};
static_assert(sizeof(EdgeRecord<int32_t, false>) == 8 && sizeof(EdgeRecord<int64_t, true>) == 24);

/// Buckets of about 2^17 edges, or 2^16 keys where edges are few: both fit a private cache of 2 MiB.
inline BucketGrid edge_grid(int64_t num_keys, int64_t num_edges) {
  constexpr int kBucketEdgeBits = 17, kMaxShift = 16;
  return choose_grid(num_keys, (num_edges >> kBucketEdgeBits) + 1, kMaxShift);
}

/// Counting sort of one bucket: fills its part of indptr, indices and positions.
template <typename Id, bool kPositions>
void sort_bucket(const Partition<EdgeRecord<Id, kPositions>>& partition, int64_t bucket, int64_t first_edge,
                 CscArrays& out, Id* indices, std::vector<int64_t>& cursors) {
  const BucketGrid& grid = partition.grid();
  const int64_t first_key = grid.first_key(bucket), span = grid.end_key(bucket) - first_key;
  cursors.assign(static_cast<size_t>(span), 0);
  for (int c = 0; c < partition.chunks(); ++c)
    for (const auto& record : partition.run(bucket, c)) ++cursors[record.local];
  int64_t next = first_edge;
  for (int64_t k = 0; k < span; ++k) {
    out.indptr[first_key + k] = next;
    next += std::exchange(cursors[static_cast<size_t>(k)], next);
  }
  for (int c = 0; c < partition.chunks(); ++c)
    for (const auto& record : partition.run(bucket, c)) {
      const int64_t at = cursors[record.local]++;
      indices[at] = record.id;
      if constexpr (kPositions) out.positions[at] = record.position;
    }
}

/// Groups num_edges edges by key. keys(begin, end, f) calls f(key) and records(begin, end, f) calls
/// f(key, id, position) for the edges [begin, end) in order.
template <typename Id, bool kPositions, typename ScanKeys, typename ScanRecords>
CscArrays group_edges(int64_t num_edges, int64_t num_keys, int threads, ScanKeys&& keys, ScanRecords&& records) {
  using Record = EdgeRecord<Id, kPositions>;
  const BucketGrid grid = edge_grid(num_keys, num_edges);
  const uint32_t local_mask = static_cast<uint32_t>((int64_t{1} << grid.shift) - 1);
  const auto partition =
      partition_by_key<Record>(num_edges, grid, threads, keys, [&](int, int64_t begin, int64_t end, auto& writer) {
        records(begin, end, [&](int64_t key, int64_t id, [[maybe_unused]] int64_t position) {
          const uint32_t local = static_cast<uint32_t>(key) & local_mask;
          if constexpr (kPositions)
            writer.put(key, Record{local, static_cast<Id>(id), position});
          else
            writer.put(key, Record{local, static_cast<Id>(id), {}});
        });
      });

  CscArrays out;
  out.indptr = Buffer<int64_t>(num_keys + 1);
  out.indptr[num_keys] = num_edges;
  if constexpr (kPositions) out.positions = Buffer<int64_t>(num_edges);
  Buffer<Id> indices(num_edges);
  const auto offsets = partition.bucket_offsets();
  for_blocks(threads, grid.num_buckets(), [&](int64_t bucket) {
    thread_local std::vector<int64_t> cursors;
    sort_bucket<Id, kPositions>(partition, bucket, offsets[static_cast<size_t>(bucket)], out, indices.data(), cursors);
  });
  out.indices = std::move(indices);
  return out;
}

/// Calls group_edges with the id width that `num_ids` needs.
template <typename ScanKeys, typename ScanRecords>
CscArrays group_edges(int64_t num_edges, int64_t num_keys, int64_t num_ids, int threads, bool want_positions,
                      ScanKeys&& keys, ScanRecords&& records) {
  if (needs_wide_ids(num_ids))
    return want_positions ? group_edges<int64_t, true>(num_edges, num_keys, threads, keys, records)
                          : group_edges<int64_t, false>(num_edges, num_keys, threads, keys, records);
  return want_positions ? group_edges<int32_t, true>(num_edges, num_keys, threads, keys, records)
                        : group_edges<int32_t, false>(num_edges, num_keys, threads, keys, records);
}

}  // namespace tiering
