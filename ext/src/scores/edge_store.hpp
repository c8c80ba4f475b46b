// Where binned edges lie: in memory, except for extents of a scratch file.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <tiering/buffer.hpp>
#include <tiering/partition.hpp>
#include <tiering/scratch_file.hpp>
#include <utility>
#include <vector>

namespace tiering {

/// Source within the bin in the low half, rank within the block in the high half.
using BinnedEdge = uint32_t;

/// Extents begin and end at multiples of so many places, and so do the runs of a partition that has some.
inline constexpr int64_t kPageEdges = kScratchAlignment / static_cast<int64_t>(sizeof(BinnedEdge));

/// Places [begin, end) of the edges, kept from `offset` of the scratch file on.
struct DiskExtent {
  int64_t begin, end;
  int64_t offset;  ///< bytes
};

class EdgeStore {
 public:
  EdgeStore() = default;

  /// Makes room for `num_places` edges; `on_disk`, ascending, need none.
  EdgeStore(int64_t num_places, std::vector<DiskExtent> on_disk);

  /// A pointer such that pointer + place is the edge of every place in memory from `place` to the next extent.
  BinnedEdge* memory(int64_t place) { return edges_.data() - disk_places(place); }
  const BinnedEdge* memory(int64_t place) const { return edges_.data() - disk_places(place); }

  /// The first extent that ends behind `place`; nullptr if there is none.
  const DiskExtent* extent_at(int64_t place) const;

 private:
  int64_t disk_places(int64_t place) const;

  std::vector<DiskExtent> on_disk_;
  std::vector<int64_t> before_;  ///< per extent: places in those before it; then in all
  Buffer<BinnedEdge> edges_;
};

/// Takes the lines of one chunk of a partition (see BucketWriter) to their places.
class EdgeSink {
 public:
  /// `behind` may be null if nothing lies on disk.
  EdgeSink(EdgeStore& store, WriteBehind* behind, int64_t num_buckets)
      : store_(&store), behind_(behind), cursors_(static_cast<size_t>(num_buckets)) {}

  void line(int64_t bucket, int64_t at, const BinnedEdge* edges) {
    Cursor& cursor = cursors_[static_cast<size_t>(bucket)];
    if (at >= cursor.end) enter(cursor, at);
    stream_lines(cursor.base + at, edges, kLineRecords<BinnedEdge> * sizeof(BinnedEdge));
  }

  void rest(int64_t bucket, int64_t at, const BinnedEdge* edges, int64_t count) {
    Cursor& cursor = cursors_[static_cast<size_t>(bucket)];
    if (at >= cursor.end) enter(cursor, at);
    std::copy_n(edges, count, cursor.base + at);
  }

  void finish(std::span<const int64_t> ends);

 private:
  /// Where lines of a bucket go at present, up to place `end`.
  struct Cursor {
    BinnedEdge* base = nullptr;
    int64_t begin = 0, end = std::numeric_limits<int64_t>::min();
    char* staged = nullptr;  ///< the buffer that collects what goes to disk, from place `begin` on
    int64_t offset = 0;      ///< of that place in the file
  };

  void enter(Cursor& cursor, int64_t at);
  void flush(Cursor& cursor, int64_t end);

  EdgeStore* store_;
  WriteBehind* behind_;
  std::vector<Cursor> cursors_;
};

}  // namespace tiering
