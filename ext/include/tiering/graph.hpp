// Kernels on adjacency: edges to CSC by buckets, checks, degrees.
#pragma once

#include <cstddef>
#include <string>
#include <tiering/buffer.hpp>
#include <tiering/views.hpp>
#include <vector>

namespace tiering {

/// How keys 0..num_keys-1 fall into buckets: bucket = key >> shift.
struct BucketGrid {
  int64_t num_keys = 0;
  int shift = 0;

  int64_t num_buckets() const { return ((num_keys - 1) >> shift) + 1; }
  int64_t first_key(int64_t bucket) const { return bucket << shift; }
  int64_t end_key(int64_t bucket) const { return std::min(num_keys, (bucket + 1) << shift); }
};

/// The grid with about `wanted` buckets: at most that many, unless a bucket would have more than 2^max_shift keys (then
/// more buckets, but at most `max_buckets`; the lines of the default still fit a core's private cache).
inline BucketGrid choose_grid(int64_t num_keys, int64_t wanted, int max_shift, int64_t max_buckets = 4096) {
  BucketGrid grid{num_keys, 0};
  while (grid.num_buckets() > std::min(wanted, max_buckets) &&
         (grid.shift < max_shift || grid.num_buckets() > max_buckets))
    ++grid.shift;
  return grid;
}

/// Values that run along the edges of a chunk; without data, the numbers of the edges.
struct EdgeValues {
  const std::byte* data = nullptr;
  int64_t item_bytes = 8, stride_bytes = 8;
  int64_t num_edges = 0;
};

/// A part of an edge list, numbered from first_edge on.
struct EdgeChunk {
  IdView src, dst;
  int64_t first_edge = 0;
  std::vector<EdgeValues> values;
};

/// Runs: the edges of consecutive buckets, bucket after bucket, from each chunk of the edges.
struct ScatteredRuns {
  std::span<std::byte> memory;          ///< in which all lie; the records are changed
  std::span<const int64_t> places;      ///< by run: of its records, and of each value, in bytes
  std::span<const int64_t> counts;      ///< by run and bucket
  std::span<const int64_t> item_bytes;  ///< of each value
};

int64_t scattered_bytes(int64_t num_src);

/// Edges of a chunk by thread and bucket of destinations; the keys of the grid are all destinations. Throws InputError
/// naming an edge whose destination is out of range; edges are numbered from first_edge on.
std::vector<int64_t> count_buckets(const IdView& dst, int64_t first_edge, const BucketGrid& grid, int threads);

/// Partitions a chunk of edges that count_buckets counted; buckets below `first` are dropped. `parts` is memory,
/// aligned to 16 bytes, for the records and for each value. Throws InputError naming an edge whose source is not in
/// [0, num_src).
void scatter_edges(const EdgeChunk& chunk, int64_t num_src, const BucketGrid& grid, std::span<const int64_t> counts,
                   int64_t first, std::span<const std::span<std::byte>> parts, int threads);

/// Sorts the runs of consecutive buckets by column; the keys of the grid are their columns. Fills indptr, one entry per
/// column, counted from first_entry on, and `outs`: the ids, in 64 bits where num_src needs them, and each value.
void sort_runs(const ScatteredRuns& runs, const BucketGrid& grid, int64_t num_src, int64_t first_entry,
               std::span<int64_t> indptr, std::span<const std::span<std::byte>> outs, int threads);

/// Throws InputError saying where, unless indptr starts at 0, never falls and ends at the number of indices. Messages
/// begin with `name`.
void check_indptr(std::span<const int64_t> indptr, int64_t num_indices, const std::string& name, int threads);
inline void check_indptr(const CscView& csc, int threads) {
  check_indptr(csc.indptr, csc.num_edges(), "indptr", threads);
}

/// check_indptr, and every index in [0, num_src).
void check_csc(const CscView& csc, int64_t num_src, int threads);

/// The entries of lists, list after list, each in ascending order of its keys; of equal keys the first stays first.
Buffer<int64_t> order_lists(std::span<const int64_t> keys, std::span<const int64_t> indptr, int threads);

/// degrees[u] = how often u stands in `indices`. Throws InputError if an index is outside [0, num_src).
Buffer<int64_t> out_degrees(const IdSpan& indices, int64_t num_src, int threads);

}  // namespace tiering
