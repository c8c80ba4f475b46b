// Edge list to CSC when the edges do not fit in memory: the edges are scattered once into buckets of consecutive
// columns, in memory or on disk, and each bucket is then sorted where it fits the private cache.
//
// Approach:   a chunk of the edges is counted and then partitioned, 8 bytes per record (16 with 64-bit ids), through
//             two cache lines per bucket (as partition.hpp does); the records of a bucket and chunk, a run, lie
//             together. A bucket is the sequence of its runs; a counting sort with one counter per column brings them
//             in order.
// Why:        each edge is read once and written twice, whatever the number of nodes; the random accesses stay
//             within a bucket.
// Memory:     the records of a chunk, which the caller provides; 4 bytes per column of a bucket and thread.
// Determinism: runs are in input order, thread after thread, so every column has its edges in input order.
// Parallelism: to scatter, by edges; to sort, threads own buckets.
#include <algorithm>
#include <numeric>
#include <string>
#include <tiering/errors.hpp>
#include <tiering/graph.hpp>
#include <tiering/line_writer.hpp>
#include <tiering/parallel.hpp>
#include <tuple>
#include <utility>
#include <vector>

#include "id_checks.hpp"

namespace tiering {
namespace {

template <typename Id>
struct Scattered {
  uint32_t local;  ///< column - first column of the bucket
  Id id;
};

/// Where each thread's part of each run begins; nullptr where records are dropped.
template <typename Record>
std::vector<std::vector<Record*>> run_places(const ScatterTarget& target, std::span<const int64_t> counts,
                                             int threads) {
  const int64_t num_buckets = static_cast<int64_t>(counts.size()) / threads;
  std::vector<std::vector<Record*>> places(static_cast<size_t>(threads),
                                           std::vector<Record*>(static_cast<size_t>(num_buckets), nullptr));
  for (const auto& [first, end, memory] : {std::tuple(target.first, target.split, target.low),
                                           std::tuple(target.split, num_buckets, target.high)}) {
    auto* next = reinterpret_cast<Record*>(memory.data());
    const auto* const stop = next + memory.size() / sizeof(Record);
    TIERING_EXPECT(reinterpret_cast<uintptr_t>(next) % sizeof(Record) == 0, "the records are not aligned");
    for (int64_t b = first; b < end; ++b)
      for (int t = 0; t < threads; ++t) {
        places[static_cast<size_t>(t)][static_cast<size_t>(b)] = next;
        const int64_t count = counts[static_cast<size_t>(t * num_buckets + b)];
        TIERING_EXPECT(count <= stop - next, "the memory for the records is too small");
        next += count;
      }
  }
  return places;
}

template <typename Id, typename Src, typename Dst>
void scatter(const Src& src, const Dst& dst, int64_t size, int64_t first_edge, int64_t num_src,
             const BucketGrid& grid, std::span<const int64_t> counts, const ScatterTarget& target,
             int threads) {
  const auto places = run_places<Scattered<Id>>(target, counts, threads);
  const auto mask = static_cast<uint32_t>((int64_t{1} << grid.shift) - 1);
  run_team(threads, [&](int t) {
    const auto [begin, end] = even_cut(size, threads, t);
    LineWriter<Scattered<Id>> writer(places[static_cast<size_t>(t)]);
    for (int64_t k = begin; k < end; ++k) {
      const int64_t u = src[k], v = dst[k], bucket = v >> grid.shift;
      if (!in_range(u, num_src)) edge_out_of_range(first_edge + k, "source", u, num_src);
      if (bucket < target.first) continue;
      writer.put(static_cast<size_t>(bucket), {static_cast<uint32_t>(v) & mask, static_cast<Id>(u)});
    }
    writer.finish();
  });
}

/// Sorts one bucket, whose runs lie at `runs`: fills its part of indptr and of the ids.
template <typename Id>
void sort_bucket(std::span<const std::span<const Scattered<Id>>> runs, int64_t first_entry,
                 std::span<int64_t> indptr, Id* out, std::vector<uint32_t>& cursors) {
  cursors.assign(indptr.size(), 0);
  for (const auto& run : runs)
    for (const auto& record : run) ++cursors[record.local];
  uint32_t next = 0;
  for (size_t v = 0; v < indptr.size(); ++v) {
    indptr[v] = first_entry + next;
    next += std::exchange(cursors[v], next);
  }
  for (const auto& run : runs)
    for (const auto& record : run) out[cursors[record.local]++] = record.id;
}

template <typename Id>
void sort_all(const ScatteredRuns& runs, const BucketGrid& grid, int64_t first_entry,
              std::span<int64_t> indptr, Id* out, int threads) {
  using Record = Scattered<Id>;
  const size_t num_buckets = static_cast<size_t>(grid.num_buckets()), num_runs = runs.chunks.size();
  std::vector<std::span<const Record>> parts(num_buckets * num_runs);
  std::vector<int64_t> offsets(num_buckets + 1, 0);
  for (size_t c = 0; c < num_runs; ++c) {
    const auto* next = reinterpret_cast<const Record*>(runs.chunks[c].data());
    const auto* const stop = next + runs.chunks[c].size() / sizeof(Record);
    TIERING_EXPECT(reinterpret_cast<uintptr_t>(next) % alignof(Record) == 0, "the records are not aligned");
    for (size_t b = 0; b < num_buckets; ++b) {
      const int64_t count = runs.counts[c * num_buckets + b];
      TIERING_EXPECT(count >= 0 && count <= stop - next, "a run has fewer records than were counted");
      parts[b * num_runs + c] = {next, static_cast<size_t>(count)};
      next += count;
      offsets[b + 1] += count;
    }
  }
  for (size_t b = 0; b < num_buckets; ++b)
    TIERING_EXPECT(offsets[b + 1] < int64_t{1} << 32, "a bucket has 2^32 edges or more");
  std::partial_sum(offsets.begin(), offsets.end(), offsets.begin());
  for_blocks(threads, grid.num_buckets(), [&](int64_t bucket) {
    thread_local std::vector<uint32_t> cursors;
    const auto b = static_cast<size_t>(bucket);
    const auto first = static_cast<size_t>(grid.first_key(bucket)),
               end = static_cast<size_t>(grid.end_key(bucket));
    sort_bucket<Id>(std::span(parts).subspan(b * num_runs, num_runs), first_entry + offsets[b],
                    indptr.subspan(first, end - first), out + offsets[b], cursors);
  });
}

}  // namespace

int64_t scattered_bytes(int64_t num_src) {
  return needs_wide_ids(num_src) ? sizeof(Scattered<int64_t>) : sizeof(Scattered<int32_t>);
}

std::vector<int64_t> count_buckets(const IdView& dst, int64_t first_edge, const BucketGrid& grid,
                                   int threads) {
  const auto num_buckets = static_cast<size_t>(grid.num_buckets());
  std::vector<int64_t> counts(num_buckets * static_cast<size_t>(threads), 0);
  dst.visit([&](const auto& d) {
    run_team(threads, [&](int t) {
      const auto [begin, end] = even_cut(dst.size, threads, t);
      std::vector<int64_t> own(num_buckets, 0);
      for (int64_t k = begin; k < end; ++k) {
        const int64_t v = d[k];
        if (!in_range(v, grid.num_keys)) edge_out_of_range(first_edge + k, "destination", v, grid.num_keys);
        ++own[static_cast<size_t>(v >> grid.shift)];
      }
      std::copy(own.begin(), own.end(),
                counts.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(t) * num_buckets));
    });
  });
  return counts;
}

void scatter_edges(const IdView& src, const IdView& dst, int64_t first_edge, int64_t num_src,
                   const BucketGrid& grid, std::span<const int64_t> counts, const ScatterTarget& target,
                   int threads) {
  TIERING_EXPECT(src.size == dst.size, "a chunk has " + std::to_string(dst.size) + " destinations and " +
                                           std::to_string(src.size) +
                                           " sources: one of each per edge is needed");
  TIERING_EXPECT(static_cast<int64_t>(counts.size()) == grid.num_buckets() * threads,
                 "the counts are not those of as many threads and buckets");
  TIERING_EXPECT(0 <= target.first && target.first <= target.split && target.split <= grid.num_buckets(),
                 "the buckets of the two memories are out of order");
  src.visit([&](const auto& s) {
    dst.visit([&](const auto& d) {
      if (needs_wide_ids(num_src))
        scatter<int64_t>(s, d, src.size, first_edge, num_src, grid, counts, target, threads);
      else
        scatter<int32_t>(s, d, src.size, first_edge, num_src, grid, counts, target, threads);
    });
  });
}

void sort_runs(const ScatteredRuns& runs, const BucketGrid& grid, int64_t num_src, int64_t first_entry,
               std::span<int64_t> indptr, std::span<std::byte> indices, int threads) {
  TIERING_EXPECT(static_cast<int64_t>(indptr.size()) == grid.num_keys, "indptr needs one entry per column");
  TIERING_EXPECT(runs.counts.size() == runs.chunks.size() * static_cast<size_t>(grid.num_buckets()),
                 "counts needs one entry per run and bucket");
  const int64_t total = std::accumulate(runs.counts.begin(), runs.counts.end(), int64_t{0});
  TIERING_EXPECT(static_cast<int64_t>(indices.size()) == total * (needs_wide_ids(num_src) ? 8 : 4),
                 "indices needs one entry per record");
  if (needs_wide_ids(num_src))
    sort_all(runs, grid, first_entry, indptr, reinterpret_cast<int64_t*>(indices.data()), threads);
  else
    sort_all(runs, grid, first_entry, indptr, reinterpret_cast<int32_t*>(indices.data()), threads);
}

}  // namespace tiering
