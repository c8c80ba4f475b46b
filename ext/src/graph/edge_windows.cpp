// Edge list to CSC, a chunk of the edges and a window of the result at a time: for graphs that do not fit in
// memory.
//
// Approach:   a chunk is partitioned into buckets of consecutive columns (partition.hpp); then threads own
//             buckets, so counters and cursors need no atomics, and a bucket's part of the window stays in the
//             private cache.
// Memory:     per edge of the chunk 4 bytes to count; to place, 4 and the size of a value (8 for values that
//             are not of 4 or 8 bytes).
// Determinism: chunks come in order and the partition is stable, so every column has its edges in input order,
//             for any chunks, windows and number of threads.
#include <algorithm>
#include <cstring>
#include <string>
#include <tiering/errors.hpp>
#include <tiering/graph.hpp>
#include <tiering/partition.hpp>

#include "id_checks.hpp"

namespace tiering {
namespace {

constexpr int64_t kBucketEdges = int64_t{1} << 17;
constexpr int64_t kBucketBytes = int64_t{1} << 20;  ///< of the window
constexpr int kMaxShift = 16;                       ///< keys of a bucket: their cursors take 512 KiB

BucketGrid window_grid(int64_t num_columns, int64_t num_edges, int64_t window_bytes) {
  return choose_grid(num_columns, std::max(num_edges / kBucketEdges, window_bytes / kBucketBytes) + 1,
                     kMaxShift);
}

/// Adds how often each column stands in dst.
template <typename Dst>
void count_columns(const Dst& dst, int64_t size, int64_t first_edge, std::span<int64_t> counts, int threads) {
  const auto num_columns = static_cast<int64_t>(counts.size());
  const BucketGrid grid = window_grid(num_columns, size, num_columns * 8);
  auto keys = [&](int64_t begin, int64_t end, auto&& f) {
    for (int64_t k = begin; k < end; ++k) {
      const int64_t v = dst[k];
      if (!in_range(v, num_columns)) edge_out_of_range(first_edge + k, "destination", v, num_columns);
      f(v);
    }
  };
  const auto mask = static_cast<uint32_t>((int64_t{1} << grid.shift) - 1);
  auto records = [&](int, int64_t begin, int64_t end, auto& writer) {
    for (int64_t k = begin; k < end; ++k) writer.put(dst[k], static_cast<uint32_t>(dst[k]) & mask);
  };
  const auto partition = partition_by_key<uint32_t>(size, grid, threads, keys, records);
  for_blocks(threads, grid.num_buckets(), [&](int64_t bucket) {
    int64_t* const own = counts.data() + grid.first_key(bucket);
    for (int c = 0; c < partition.chunks(); ++c)
      for (const uint32_t local : partition.run(bucket, c)) ++own[local];
  });
}

template <typename Value>
struct Placed {
  uint32_t local;  ///< column - first column of the bucket
  Value value;
};

/// Puts value(k) of every edge k of the chunk at its place in the window.
template <typename Value, typename Dst, typename ValueOf, typename Put>
void place_values(const Dst& dst, int64_t size, const EdgeWindow& window, ValueOf&& value, Put&& put,
                  int threads) {
  const auto num_columns = static_cast<int64_t>(window.cursors.size());
  const BucketGrid grid = window_grid(num_columns, size, (window.end - window.first) * 8);
  const auto mask = static_cast<uint32_t>((int64_t{1} << grid.shift) - 1);
  auto each = [&](int64_t begin, int64_t end, auto&& f) {
    for (int64_t k = begin; k < end; ++k)
      if (const int64_t column = wrapped_difference(dst[k], window.first_column);
          in_range(column, num_columns))
        f(k, column);
  };
  auto keys = [&](int64_t begin, int64_t end, auto&& f) {
    each(begin, end, [&](int64_t, int64_t column) { f(column); });
  };
  auto records = [&](int, int64_t begin, int64_t end, auto& writer) {
    each(begin, end, [&](int64_t k, int64_t column) {
      writer.put(column, Placed<Value>{static_cast<uint32_t>(column) & mask, value(k)});
    });
  };
  const auto partition = partition_by_key<Placed<Value>>(size, grid, threads, keys, records);
  for_blocks(threads, grid.num_buckets(), [&](int64_t bucket) {
    int64_t* const cursors = window.cursors.data() + grid.first_key(bucket);
    for (int c = 0; c < partition.chunks(); ++c)
      for (const auto& record : partition.run(bucket, c)) {
        const int64_t at = cursors[record.local]++;  // the columns at the ends reach beyond the window
        if (at >= window.first && at < window.end) put(at - window.first, record.value);
      }
  });
}

template <typename Id, typename Src, typename Dst>
void place_ids(const Src& src, const Dst& dst, int64_t size, int64_t first_edge, int64_t num_src,
               const EdgeWindow& window, int threads) {
  auto* const out = static_cast<Id*>(window.out);
  auto checked = [&, first_edge, num_src](int64_t k) {
    const int64_t u = src[k];
    if (!in_range(u, num_src)) edge_out_of_range(first_edge + k, "source", u, num_src);
    return static_cast<Id>(u);
  };
  place_values<Id>(dst, size, window, checked, [out](int64_t at, Id id) { out[at] = id; }, threads);
}

template <typename Value, typename Dst>
void place_items(const void* values, const Dst& dst, int64_t size, const EdgeWindow& window, int threads) {
  const auto* const from = static_cast<const Value*>(values);
  auto* const out = static_cast<Value*>(window.out);
  place_values<Value>(
      dst, size, window, [from](int64_t k) { return from[k]; },
      [out](int64_t at, Value value) { out[at] = value; }, threads);
}

/// Items of any size: the record says which, and they are copied last.
template <typename Dst>
void place_bytes(const void* values, int64_t item_bytes, const Dst& dst, int64_t size,
                 const EdgeWindow& window, int threads) {
  const auto* const from = static_cast<const char*>(values);
  auto* const out = static_cast<char*>(window.out);
  const auto bytes = static_cast<size_t>(item_bytes);
  place_values<uint32_t>(
      dst, size, window, [](int64_t k) { return static_cast<uint32_t>(k); },
      [=](int64_t at, uint32_t k) { std::memcpy(out + at * item_bytes, from + k * item_bytes, bytes); },
      threads);
}

void check_chunk(int64_t size, int64_t other) {
  TIERING_EXPECT(size == other, "a chunk has " + std::to_string(size) + " destinations and " +
                                    std::to_string(other) + " values: one of each per edge is needed");
  TIERING_EXPECT(size < int64_t{1} << 32, "a chunk has 2^32 edges or more");
}

}  // namespace

void count_destinations(const IdView& dst, int64_t first_edge, std::span<int64_t> counts, int threads) {
  dst.visit([&](const auto& d) { count_columns(d, dst.size, first_edge, counts, threads); });
}

void place_sources(const IdView& src, const IdView& dst, int64_t first_edge, int64_t num_src,
                   const EdgeWindow& window, int threads) {
  check_chunk(dst.size, src.size);
  src.visit([&](const auto& s) {
    dst.visit([&](const auto& d) {
      if (needs_wide_ids(num_src))
        place_ids<int64_t>(s, d, src.size, first_edge, num_src, window, threads);
      else
        place_ids<int32_t>(s, d, src.size, first_edge, num_src, window, threads);
    });
  });
}

void place_edge_data(const void* values, int64_t item_bytes, int64_t num_values, const IdView& dst,
                     const EdgeWindow& window, int threads) {
  check_chunk(dst.size, num_values);
  dst.visit([&](const auto& d) {
    if (item_bytes == 4)
      place_items<uint32_t>(values, d, dst.size, window, threads);
    else if (item_bytes == 8)
      place_items<uint64_t>(values, d, dst.size, window, threads);
    else
      place_bytes(values, item_bytes, d, dst.size, window, threads);
  });
}

}  // namespace tiering
