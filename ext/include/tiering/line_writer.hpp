// Appends records to many buckets at once, a few lines at a time: the memory behind is neither read nor held in the
// caches, and a bucket's page is asked for once in a while instead of with every record.
#pragma once

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <cstddef>
#include <cstring>
#include <tiering/buffer.hpp>
#include <tiering/errors.hpp>
#include <tiering/parallel.hpp>
#include <vector>

namespace tiering {

/// Copies `bytes` (a multiple of 64) to `to`, which is aligned to 64 bytes, past the caches: for lines that are written
/// once, whole, and read much later.
inline void stream_lines(void* to, const void* from, size_t bytes) {
#if defined(__SSE2__)
  auto* target = static_cast<__m128i*>(to);
  const auto* source = static_cast<const __m128i*>(from);
  for (size_t i = 0; i < bytes / sizeof(__m128i); ++i) _mm_stream_si128(target + i, _mm_load_si128(source + i));
#else
  std::memcpy(to, from, bytes);
#endif
}

/// Makes this thread's streamed lines visible to others. Call before the thread ends its phase.
inline void stream_fence() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

/// Where each thread's records of each bucket begin, from `at` on: bucket after bucket, in them thread after thread.
/// `counts`: records by thread and bucket.
template <typename Record>
std::vector<std::vector<Record*>> bucket_begins(const std::vector<std::vector<int64_t>>& counts, Record* at) {
  std::vector<std::vector<Record*>> begins(counts.size());
  for (size_t bucket = 0; bucket < counts.front().size(); ++bucket)
    for (size_t t = 0; t < counts.size(); ++t) {
      begins[t].push_back(at);
      at += counts[t][bucket];
    }
  return begins;
}

/// Collects two lines per bucket, and streams them to the bucket's memory when they are full; of one thread.
template <typename Record>
class LineWriter {
  static constexpr uintptr_t kBytes = 2 * kLineBytes, kSlots = kBytes / sizeof(Record);

 public:
  /// Buckets begin at `begins`, aligned to records, and get `counts` records each.
  LineWriter(std::vector<Record*> begins, std::span<const int64_t> counts)
      : begins_(std::move(begins)),
        next_(begins_),
        ends_(begins_),
        lines_(static_cast<int64_t>(begins_.size() * kSlots)) {
    for (size_t bucket = 0; bucket < ends_.size(); ++bucket) ends_[bucket] += counts[bucket];
  }

  void put(size_t bucket, const Record& record) {
    Record* const at = next_[bucket]++;
    const uintptr_t slot = (reinterpret_cast<uintptr_t>(at) & (kBytes - 1)) / sizeof(Record);
    Record* const line = &lines_[static_cast<int64_t>(bucket * kSlots)];
    line[slot] = record;
    if (slot == kSlots - 1) flush(bucket, at - slot, line);
  }

  /// Writes the lines that did not fill up. Call once, after the last put.
  void finish() {
    for (size_t bucket = 0; bucket < next_.size(); ++bucket) {
      if (next_[bucket] != ends_[bucket]) changed_meanwhile();
      const uintptr_t slot = (reinterpret_cast<uintptr_t>(next_[bucket]) & (kBytes - 1)) / sizeof(Record);
      Record* const first = std::max(next_[bucket] - slot, begins_[bucket]);
      const Record* const line = &lines_[static_cast<int64_t>(bucket * kSlots)];
      std::copy(line + (first - (next_[bucket] - slot)), line + slot, first);
    }
    stream_fence();
  }

 private:
  /// A first line that others share is written in part.
  void flush(size_t bucket, Record* to, const Record* line) {
    if (next_[bucket] > ends_[bucket]) changed_meanwhile();
    if (to >= begins_[bucket])
      stream_lines(to, line, kBytes);
    else
      std::copy(line + (begins_[bucket] - to), line + kSlots, begins_[bucket]);
  }

  std::vector<Record*> begins_, next_, ends_;
  Buffer<Record> lines_;
};

/// Records in the order of their buckets, in each in the order of the items that they come from.
template <typename Record>
struct BucketedRecords {
  Buffer<Record> records;
  Buffer<int64_t> counts;  ///< of each bucket
};

/// `walk(begin, end, put)` calls put(bucket, record) for the items [begin, end), twice for all: they are counted first.
template <typename Record, typename Walk>
BucketedRecords<Record> bucket_records(int64_t items, int64_t buckets, int threads, Walk&& walk) {
  std::vector<std::vector<int64_t>> counts(static_cast<size_t>(threads));  // by thread and bucket
  for_cuts(threads, items, [&](int64_t begin, int64_t end, int t) {
    std::vector<int64_t> own(static_cast<size_t>(buckets), 0);
    walk(begin, end, [counter = own.data()](int64_t bucket, Record) { ++counter[bucket]; });
    counts[t] = std::move(own);
  });
  BucketedRecords<Record> made{Buffer<Record>(items), Buffer<int64_t>(buckets, 0)};
  auto begins = bucket_begins(counts, made.records.data());
  for_cuts(threads, items, [&](int64_t begin, int64_t end, int t) {
    LineWriter<Record> writer(std::move(begins[t]), counts[t]);
    walk(begin, end, [&](int64_t bucket, Record record) { writer.put(static_cast<size_t>(bucket), record); });
    writer.finish();
  });
  for (const auto& own : counts)
    for (int64_t bucket = 0; bucket < buckets; ++bucket) made.counts[bucket] += own[bucket];
  return made;
}

}  // namespace tiering
