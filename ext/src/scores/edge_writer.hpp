// Edges on their way to their bins, through two cache lines for each (software write combining): to memory, or, of bins
// that are spilled, to a scratch file. The edges of a bin keep the order of the input, chunk by chunk.
// Source: Satish et al., "Fast sort on CPUs and GPUs" (SIGMOD'10).
#pragma once

#include <limits>
#include <tiering/graph.hpp>
#include <tiering/io/scratch_file.hpp>
#include <tiering/line_writer.hpp>

namespace tiering {

/// Source within the bin in the low half, rank within the block in the high half.
using BinnedEdge = uint32_t;

/// Edges of a page of the scratch file, and of two cache lines: at their multiples runs begin there, and in memory.
inline constexpr int64_t kPageEdges = kScratchAlignment / static_cast<int64_t>(sizeof(BinnedEdge)),
                         kLineEdges = 2 * kLineBytes / sizeof(BinnedEdge);

/// Runs: the edges that a chunk of the input has in a bucket.
struct EdgeRuns {
  struct Run {
    int64_t begin = 0, count = 0;  ///< place, in memory or in the scratch file, and edges
  };
  EdgeRuns(BucketGrid buckets, int num_chunks)
      : grid(buckets), chunks(num_chunks), runs(static_cast<size_t>(buckets.num_buckets() * num_chunks)) {}

  Run& at(int64_t bucket, int chunk) { return runs[bucket * chunks + chunk]; }
  const Run& at(int64_t bucket, int chunk) const { return runs[bucket * chunks + chunk]; }

  BucketGrid grid;
  int chunks;
  std::vector<Run> runs;
};

/// The two sides of an EdgeWriter's edges.
struct EdgeTargets {
  BinnedEdge* resident;
  WriteBehind* behind;        ///< null if nothing is spilled
  std::vector<char> spilled;  ///< per bucket
};

/// Takes the edges of one chunk to their places.
class EdgeWriter {
 public:
  EdgeWriter(const EdgeRuns& runs, const EdgeTargets& targets, int chunk)
      : grid_(runs.grid),
        behind_(targets.behind),
        lines_(grid_.num_buckets() * kLineEdges),
        next_(grid_.num_buckets()),
        ends_(grid_.num_buckets()) {
    for (int64_t b = 0; b < next_.size(); ++b) {
      next_[b] = runs.at(b, chunk).begin;
      ends_[b] = next_[b] + runs.at(b, chunk).count;
      targets_.push_back(targets.spilled[b] ? Target{} : Target{targets.resident, std::numeric_limits<int64_t>::max()});
    }
  }

  /// Appends an edge to the bucket of `key`.
  void put(int64_t key, BinnedEdge edge) {
    if (static_cast<uint64_t>(key) >= static_cast<uint64_t>(grid_.num_keys)) changed_meanwhile();
    const int64_t bucket = key >> grid_.shift, at = next_[bucket]++, slot = at & (kLineEdges - 1);
    BinnedEdge* const line = &lines_[bucket * kLineEdges];
    line[slot] = edge;
    if (slot != kLineEdges - 1) return;
    if (at >= ends_[bucket]) changed_meanwhile();
    stream_lines(address(bucket, at - slot), line, kLineEdges * sizeof(BinnedEdge));
  }

  /// Per bucket, the place of the next edge.
  std::span<const int64_t> next() const { return next_.span(); }

  /// Writes the lines that did not fill up. Call once, after the last put.
  void finish() {
    for (int64_t b = 0; b < next_.size(); ++b) {
      if (next_[b] != ends_[b]) changed_meanwhile();
      const int64_t rest = next_[b] & (kLineEdges - 1);
      if (rest != 0) std::copy_n(&lines_[b * kLineEdges], rest, address(b, next_[b] - rest));
      if (Target& target = targets_[b]; target.staged != nullptr) flush(target, next_[b]);
    }
    stream_fence();
  }

 private:
  /// Where the lines of a bucket go at present, up to the place `end`.
  struct Target {
    BinnedEdge* base = nullptr;
    int64_t end = std::numeric_limits<int64_t>::min();
    std::byte* staged = nullptr;  ///< a buffer that collects what is spilled, from the place `begin` on
    int64_t begin = 0;
  };

  BinnedEdge* address(int64_t bucket, int64_t at) {
    Target& target = targets_[bucket];
    if (at >= target.end) {  // of a spilled bucket: a new buffer
      if (target.staged != nullptr) flush(target, target.end);
      target.staged = behind_->take();
      target.base = reinterpret_cast<BinnedEdge*>(target.staged) - at;
      target.begin = at;
      target.end = at + behind_->buffer_bytes() / static_cast<int64_t>(sizeof(BinnedEdge));
    }
    return target.base + at;
  }

  /// Sends what was staged up to the place `end` to the file.
  void flush(Target& target, int64_t end) {
    constexpr int64_t kEdgeBytes = sizeof(BinnedEdge);
    const int64_t used = (end - target.begin) * kEdgeBytes, bytes = scratch_aligned(used);
    std::memset(target.staged + used, 0, static_cast<size_t>(bytes - used));
    stream_fence();  // another thread writes it
    behind_->write(target.staged, target.begin * kEdgeBytes, bytes);
    target.staged = nullptr;
  }

  BucketGrid grid_;
  WriteBehind* behind_;
  Buffer<BinnedEdge> lines_;
  Buffer<int64_t> next_, ends_;
  std::vector<Target> targets_;
};

}  // namespace tiering
