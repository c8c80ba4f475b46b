// Stable parallel partition of a stream of records into buckets of consecutive keys: the pass that turns
// random access over a graph into streaming ("radix partitioning", "propagation blocking").
//
// Approach:   the stream is cut into one chunk per thread. Pass 1 counts each chunk's records per bucket;
//             pass 2 sends them to their place through two cache lines of records per bucket (software
//             write combining), so memory sees whole lines only.
// Order:      records of one bucket keep the stream's order: chunk by chunk, and in order within a chunk.
//             What is computed from a bucket in this order does not depend on the number of threads.
// Memory:     sizeof(Record) per record, plus up to two cache lines of padding per bucket and thread.
// Source:     Satish et al., "Fast sort on CPUs and GPUs" (SIGMOD'10); Beamer et al., "Reducing PageRank
//             communication via propagation blocking" (IPDPS'17).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <tiering/buffer.hpp>
#include <tiering/errors.hpp>
#include <tiering/line_writer.hpp>
#include <tiering/parallel.hpp>
#include <utility>
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
/// keys (then more buckets, but never above max_buckets).
inline BucketGrid choose_grid(int64_t num_keys, int64_t wanted, int max_shift, int64_t max_buckets = kMaxBuckets) {
  BucketGrid grid{num_keys, 0};
  while (grid.num_buckets() > std::min(wanted, max_buckets) &&
         (grid.shift < max_shift || grid.num_buckets() > max_buckets))
    ++grid.shift;
  return grid;
}

/// Records collected before they are written: a power of two that fills whole cache lines.
template <typename Record>
inline constexpr int64_t kLineRecords = sizeof(Record) % 8 == 0 ? 16 : 32;

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
  int64_t count(int64_t bucket, int chunk) const { return counts_[static_cast<size_t>(bucket * chunks_ + chunk)]; }
  int64_t& begin(int64_t bucket, int chunk) { return begins_[static_cast<size_t>(bucket * chunks_ + chunk)]; }
  int64_t begin(int64_t bucket, int chunk) const { return begins_[static_cast<size_t>(bucket * chunks_ + chunk)]; }
  /// Gives every run its place; runs begin at multiples of a line.
  void allocate() {
    constexpr int64_t kAlignment = kLineRecords<Record>;
    int64_t places = 0;
    for (size_t r = 0; r < counts_.size(); ++r) {
      begins_[r] = places;
      places += (counts_[r] + kAlignment - 1) / kAlignment * kAlignment;
    }
    records_ = Buffer<Record>(places);
  }
  Record* data() { return records_.data(); }

 private:
  BucketGrid grid_;
  int chunks_;
  std::vector<int64_t> counts_;
  std::vector<int64_t> begins_;
  Buffer<Record> records_;
};

/// Where a chunk's records go: to memory.
template <typename Record>
class MemorySink {
 public:
  explicit MemorySink(Record* target) : target_(target) {}
  void line(int64_t, int64_t at, const Record* records) {
    stream_lines(target_ + at, records, kLineRecords<Record> * sizeof(Record));
  }
  void rest(int64_t, int64_t at, const Record* records, int64_t count) { std::copy_n(records, count, target_ + at); }
  void finish(std::span<const int64_t>) { stream_fence(); }

 private:
  Record* target_;
};

/// One chunk's writer: collects a line of records per bucket, then hands it to the sink, which has
/// line(bucket, place, records), rest(bucket, place, records, count) for the last of a bucket, and finish(ends)
/// with the place behind the last record of each bucket.
template <typename Record, typename Sink = MemorySink<Record>>
class BucketWriter {
  static constexpr int64_t kLine = kLineRecords<Record>;
  static_assert(kLine * sizeof(Record) % kLineBytes == 0);

 public:
  BucketWriter(const Partition<Record>& partition, Sink sink, int chunk)
      : grid_(partition.grid()),
        sink_(std::move(sink)),
        lines_(grid_.num_buckets() * kLine),
        cursors_(grid_.num_buckets()),
        ends_(grid_.num_buckets()) {
    for (int64_t b = 0; b < cursors_.size(); ++b) {
      cursors_[b] = partition.begin(b, chunk);
      ends_[b] = cursors_[b] + partition.count(b, chunk);
    }
  }

  /// Appends a record to the bucket of `key`.
  void put(int64_t key, const Record& record) {
    if (static_cast<uint64_t>(key) >= static_cast<uint64_t>(grid_.num_keys)) changed_meanwhile();
    const int64_t bucket = key >> grid_.shift, at = cursors_[bucket]++, slot = at & (kLine - 1);
    Record* line = &lines_[bucket * kLine];
    line[slot] = record;
    if (slot != kLine - 1) return;
    if (at >= ends_[bucket]) changed_meanwhile();
    sink_.line(bucket, at - slot, line);
  }

  /// Per bucket, where in the partition's records the next one goes.
  std::span<const int64_t> cursors() const { return cursors_.span(); }

  /// Writes the lines that did not fill up. Call once, after the last put.
  void finish() {
    for (int64_t b = 0; b < cursors_.size(); ++b) {
      if (cursors_[b] != ends_[b]) changed_meanwhile();
      const int64_t rest = cursors_[b] & (kLine - 1);
      if (rest != 0) sink_.rest(b, cursors_[b] - rest, &lines_[b * kLine], rest);
    }
    sink_.finish(cursors_.span());
  }

 private:
  BucketGrid grid_;
  Sink sink_;
  Buffer<Record> lines_;
  Buffer<int64_t> cursors_, ends_;
};

/// Counts the records of each chunk (pass 1) and gives them their places. Chunks are cut evenly; keys as in
/// partition_by_key.
template <typename Record, typename ScanKeys>
void count_by_key(Partition<Record>& partition, int64_t num_items, ScanKeys&& keys) {
  const BucketGrid& grid = partition.grid();
  run_team(partition.chunks(), [&](int chunk) {
    const auto [begin, end] = even_cut(num_items, partition.chunks(), chunk);
    std::vector<int64_t> counts(static_cast<size_t>(grid.num_buckets()), 0);
    keys(begin, end, [counter = counts.data(), shift = grid.shift](int64_t key) { ++counter[key >> shift]; });
    for (int64_t b = 0; b < grid.num_buckets(); ++b) partition.count(b, chunk) = counts[static_cast<size_t>(b)];
  });
}

/// Partitions num_items records by key.
///
/// keys(begin, end, f) calls f(key) for the items [begin, end) in order; records(chunk, begin, end, writer)
/// calls writer.put(key, record). Every key must be in [0, grid.num_keys): the callers check that in `keys`,
/// and throw from there. Where the second pass finds other keys than the first, that is refused.
template <typename Record, typename ScanKeys, typename ScanRecords>
Partition<Record> partition_by_key(int64_t num_items, BucketGrid grid, int threads, ScanKeys&& keys,
                                   ScanRecords&& records) {
  Partition<Record> partition(grid, threads);
  count_by_key(partition, num_items, keys);
  partition.allocate();
  for_cuts(threads, num_items, [&](int64_t begin, int64_t end, int chunk) {
    BucketWriter<Record> writer(partition, MemorySink<Record>(partition.data()), chunk);
    records(chunk, begin, end, writer);
    writer.finish();
  });
  return partition;
}

}  // namespace tiering
