// Stable parallel partition of a stream of records into buckets of consecutive keys: the pass that turns
// random access over a graph into streaming ("radix partitioning", "propagation blocking").
//
// Approach:   the stream is cut into one chunk per thread. Pass 1 counts each chunk's records per bucket;
//             pass 2 sends them to their place through one cache line of records per bucket (software
//             write combining), so memory sees whole lines only.
// Order:      records of one bucket keep the stream's order: chunk by chunk, and in order within a chunk.
//             What is computed from a bucket in this order does not depend on the number of threads.
// Memory:     sizeof(Record) per record, plus up to 8 records of padding per bucket and thread.
// Source:     Satish et al., "Fast sort on CPUs and GPUs" (SIGMOD'10); Beamer et al., "Reducing PageRank
//             communication via propagation blocking" (IPDPS'17).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <tiering/buffer.hpp>
#include <tiering/parallel.hpp>
#include <tiering/stream_store.hpp>
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

/// The largest number of buckets whose write-combining lines still fit a core's private cache.
inline constexpr int64_t kMaxBuckets = 4096;

/// The grid with about `wanted` buckets: at most that many, unless a bucket would have more than 2^max_shift
/// keys (then more buckets, but never above kMaxBuckets).
inline BucketGrid choose_grid(int64_t num_keys, int64_t wanted, int max_shift) {
  BucketGrid grid{num_keys, 0};
  while (grid.num_buckets() > std::min(wanted, kMaxBuckets) &&
         (grid.shift < max_shift || grid.num_buckets() > kMaxBuckets))
    ++grid.shift;
  return grid;
}

/// Records grouped by bucket. A bucket is one run per chunk of the input, in chunk order.
template <typename Record>
class Partition {
 public:
  Partition(BucketGrid grid, int chunks) : grid_(grid), chunks_(chunks) {
    const auto runs = static_cast<size_t>(grid.num_buckets() * chunks);
    counts_.resize(runs);
    begins_.resize(runs);
  }

  const BucketGrid& grid() const { return grid_; }
  int chunks() const { return chunks_; }

  /// The records of `bucket` that came from input chunk `chunk`.
  std::span<const Record> run(int64_t bucket, int chunk) const {
    const auto r = static_cast<size_t>(bucket * chunks_ + chunk);
    return {records_.data() + begins_[r], static_cast<size_t>(counts_[r])};
  }

  /// Number of records in each bucket, summed up: entry b = records before bucket b.
  std::vector<int64_t> bucket_offsets() const {
    std::vector<int64_t> offsets(static_cast<size_t>(grid_.num_buckets()) + 1, 0);
    for (size_t r = 0; r < counts_.size(); ++r) offsets[r / static_cast<size_t>(chunks_) + 1] += counts_[r];
    for (size_t b = 1; b < offsets.size(); ++b) offsets[b] += offsets[b - 1];
    return offsets;
  }

  // The steps of partition_by_key, in order.
  int64_t& count(int64_t bucket, int chunk) { return counts_[static_cast<size_t>(bucket * chunks_ + chunk)]; }
  int64_t begin(int64_t bucket, int chunk) const {
    return begins_[static_cast<size_t>(bucket * chunks_ + chunk)];
  }
  void place_runs();
  Record* data() { return records_.data(); }

 private:
  BucketGrid grid_;
  int chunks_;
  std::vector<int64_t> counts_;
  std::vector<int64_t> begins_;
  Buffer<Record> records_;
};

/// Eight records fill whole cache lines for every record size that is a multiple of 8 bytes.
inline constexpr int64_t kLineRecords = 8;

template <typename Record>
void Partition<Record>::place_runs() {
  int64_t next = 0;
  for (size_t r = 0; r < counts_.size(); ++r) {
    begins_[r] = next;
    next += (counts_[r] + kLineRecords - 1) / kLineRecords * kLineRecords;
  }
  records_ = Buffer<Record>(next);
}

/// One chunk's writer: collects eight records per bucket, then streams them to the bucket's run.
template <typename Record>
class BucketWriter {
  static_assert(sizeof(Record) % 8 == 0);

 public:
  BucketWriter(Partition<Record>& partition, int chunk)
      : partition_(partition),
        chunk_(chunk),
        target_(partition.data()),
        lines_(partition.grid().num_buckets() * kLineRecords),
        cursors_(partition.grid().num_buckets()) {
    for (int64_t b = 0; b < cursors_.size(); ++b) cursors_[b] = partition.begin(b, chunk);
  }

  void put(int64_t bucket, const Record& record) {
    const int64_t at = cursors_[bucket]++, slot = at % kLineRecords;
    Record* line = &lines_[bucket * kLineRecords];
    line[slot] = record;
    if (slot == kLineRecords - 1) stream_lines(target_ + (at - slot), line, kLineRecords * sizeof(Record));
  }

  /// Writes the lines that did not fill up. Call once, after the last put.
  void finish() {
    for (int64_t b = 0; b < cursors_.size(); ++b) {
      const int64_t rest = cursors_[b] % kLineRecords, begin = cursors_[b] - rest;
      std::copy_n(&lines_[b * kLineRecords], rest, target_ + begin);
    }
    stream_fence();
  }

 private:
  Partition<Record>& partition_;
  int chunk_;
  Record* target_;
  Buffer<Record> lines_;
  Buffer<int64_t> cursors_;
};

/// Partitions num_items records by key.
///
/// keys(begin, end, f) calls f(key) for the items [begin, end) in order; records(begin, end, f) calls f(key,
/// record). Every key must be in [0, grid.num_keys): the callers check that in `keys`, and throw from there.
template <typename Record, typename ScanKeys, typename ScanRecords>
Partition<Record> partition_by_key(int64_t num_items, BucketGrid grid, int threads, ScanKeys&& keys,
                                   ScanRecords&& records) {
  Partition<Record> partition(grid, threads);
  run_team(threads, [&](int chunk) {
    const auto [begin, end] = even_cut(num_items, threads, chunk);
    std::vector<int64_t> counts(static_cast<size_t>(grid.num_buckets()), 0);
    keys(begin, end, [&](int64_t key) { ++counts[static_cast<size_t>(key >> grid.shift)]; });
    for (int64_t b = 0; b < grid.num_buckets(); ++b)
      partition.count(b, chunk) = counts[static_cast<size_t>(b)];
  });
  partition.place_runs();
  run_team(threads, [&](int chunk) {
    const auto [begin, end] = even_cut(num_items, threads, chunk);
    BucketWriter<Record> writer(partition, chunk);
    records(begin, end, [&](int64_t key, const Record& r) { writer.put(key >> grid.shift, r); });
    writer.finish();
  });
  return partition;
}

}  // namespace tiering
