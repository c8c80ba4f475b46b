// Where binned edges go as they are put in bins: to memory, or, of bins that are spilled, to a scratch file.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <tiering/io/scratch_file.hpp>
#include <tiering/partition.hpp>
#include <vector>

namespace tiering {

/// Source within the bin in the low half, rank within the block in the high half.
using BinnedEdge = uint32_t;

/// Edges of a page of the scratch file, at whose multiples runs begin.
inline constexpr int64_t kPageEdges = kScratchAlignment / static_cast<int64_t>(sizeof(BinnedEdge));

/// The two sides of a BucketWriter's edges. A place is a position in memory, or in the scratch file where the bucket is
/// spilled.
struct EdgeTargets {
  BinnedEdge* resident;
  WriteBehind* behind;        ///< null if nothing is spilled
  std::vector<char> spilled;  ///< per bucket
};

/// Takes the lines of one chunk of a partition (see BucketWriter) to their places.
class EdgeSink {
 public:
  explicit EdgeSink(const EdgeTargets& targets) : behind_(targets.behind) {
    for (const char spilled : targets.spilled)
      cursors_.push_back(spilled ? Cursor{} : Cursor{targets.resident, std::numeric_limits<int64_t>::max()});
  }

  void line(int64_t bucket, int64_t at, const BinnedEdge* edges) {
    stream_lines(target(bucket, at), edges, kLineRecords<BinnedEdge> * sizeof(BinnedEdge));
  }

  void rest(int64_t bucket, int64_t at, const BinnedEdge* edges, int64_t count) {
    std::copy_n(edges, count, target(bucket, at));
  }

  void finish(std::span<const int64_t> ends) {
    for (size_t b = 0; b < cursors_.size(); ++b)
      if (cursors_[b].staged != nullptr) flush(cursors_[b], ends[b]);
    stream_fence();
  }

 private:
  /// Where the lines of a bucket go at present, up to the place `end`.
  struct Cursor {
    BinnedEdge* base = nullptr;
    int64_t end = std::numeric_limits<int64_t>::min();
    std::byte* staged = nullptr;  ///< a buffer that collects what is spilled, from the place `begin` on
    int64_t begin = 0;
  };

  BinnedEdge* target(int64_t bucket, int64_t at) {
    Cursor& cursor = cursors_[static_cast<size_t>(bucket)];
    if (at >= cursor.end) stage(cursor, at);
    return cursor.base + at;
  }

  /// Begins a new buffer at the place `at`.
  void stage(Cursor& cursor, int64_t at) {
    if (cursor.staged != nullptr) flush(cursor, cursor.end);
    cursor.staged = behind_->take();
    cursor.base = reinterpret_cast<BinnedEdge*>(cursor.staged) - at;
    cursor.begin = at;
    cursor.end = at + behind_->buffer_bytes() / static_cast<int64_t>(sizeof(BinnedEdge));
  }

  /// Sends what was staged up to the place `end` to the file.
  void flush(Cursor& cursor, int64_t end) {
    constexpr int64_t kEdgeBytes = sizeof(BinnedEdge);
    const int64_t used = (end - cursor.begin) * kEdgeBytes, bytes = scratch_aligned(used);
    std::memset(cursor.staged + used, 0, static_cast<size_t>(bytes - used));
    stream_fence();  // another thread writes it
    behind_->write(cursor.staged, cursor.begin * kEdgeBytes, bytes);
    cursor.staged = nullptr;
  }

  WriteBehind* behind_;
  std::vector<Cursor> cursors_;
};

}  // namespace tiering
