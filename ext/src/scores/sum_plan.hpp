// How the work and the memory of sums over out-edges are cut.
//
// Bins        the sources of a type, up to 2^16 each, whose sums fit the private cache.
// Pieces      of the edges of a bin: units of work, cut by the graph alone, for the sums depend on it in their
//             last bits.
// Groups      pieces in a row whose sparse edges are expanded together. The sums do not depend on them, so they
//             are cut by memory: fewer groups read the columns' values less often, more groups need less room.
// Disk        where the edges do not fit the memory, the same share of each group lies in a scratch file, so that
//             disk and processor are busy side by side: while one group is summed the next is read.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "binned_edges.hpp"

namespace tiering {

/// Where the work is cut. The sums depend on the pieces in their last bits.
struct SumLimits {
  int64_t least_piece = int64_t{1} << 20;  ///< edges: a bin of more may be cut
  int64_t most_pieces = 256;               ///< a piece has at least all edges / most_pieces
  int64_t least_group = int64_t{1} << 20;  ///< edges that are at least expanded together
  int64_t cached_columns = int64_t{1}
                           << 17;  ///< of a relation: all are dense, their values stay in the cache
};

/// A relation as the plan sees it.
struct PlannedRelation {
  int src_type;
  const BinnedEdges* edges;
};

struct SumBin {
  int type;
  int64_t index;  ///< among the bins of the type
  int64_t edges;
  int64_t pieces;
};

/// Edges [from, to) of a bin: all relations in a row, the dense columns of each before the sparse.
struct SumPiece {
  int64_t bin, index, from, to;
  int64_t place;  ///< of its sums among those of its group; unused where it is its bin's only one
};

/// The edges of a group, one relation and kind: positions [begin, end), of which [disk_begin, disk_end) are on
/// disk.
struct GroupRange {
  int64_t begin, disk_begin, disk_end, end;
  int64_t disk_at;   ///< in the group's edges on disk, counted in edges
  int64_t value_at;  ///< in the group's expanded values
};

struct SumGroup {
  int64_t first_piece, end_piece;
  std::vector<std::array<GroupRange, 2>> ranges;  ///< per relation and kind
  int64_t num_values = 0;                         ///< expanded
  int64_t num_sums = 0;                           ///< pieces that share a bin
  int64_t disk_offset = 0, disk_bytes = 0;        ///< in the scratch file
};

class SumPlan {
 public:
  /// Cuts bins and pieces. The relations must outlive the plan.
  SumPlan(const std::vector<BucketGrid>& grids, std::vector<PlannedRelation> relations,
          const SumLimits& limits);

  const std::vector<SumBin>& bins() const { return bins_; }
  const std::vector<SumPiece>& pieces() const { return pieces_; }
  const std::vector<SumGroup>& groups() const { return groups_; }

  /// Edges of the largest piece.
  int64_t largest_piece() const;

  /// Cuts groups such that edges, expanded values and buffers take at most `bytes`, in the way that is fastest by
  /// an estimate; where no way is small enough, the smallest. The edges must have their places, in runs aligned
  /// to kPageEdges where the bytes do not suffice for all of them in memory.
  void cut_groups(int64_t bytes, int threads);

  /// Bytes that edges and buffers take if nothing is on disk and there are as few groups as ever.
  int64_t plenty() const;

  /// Of the groups that were cut: bytes of the edges in memory and on disk.
  int64_t memory_bytes() const;
  int64_t disk_bytes() const;

  /// The bins of a relation's sources that are in the group, counted within the type.
  std::pair<int64_t, int64_t> own_bins(const SumGroup& group, size_t relation) const;

  /// The parts of a relation's edges that lie on disk.
  std::vector<DiskExtent> extents(size_t relation) const;

  /// Doubles between the sums of one piece and the next.
  int64_t sum_stride() const { return sum_stride_; }

 private:
  void add_bins(const std::vector<BucketGrid>& grids);
  void cut_pieces();
  std::vector<SumGroup> grouped(int64_t parts, bool from_disk) const;
  void set_ranges(SumGroup& group) const;
  GroupRange range_of(const SumGroup& group, size_t relation, ColumnKind kind) const;
  int64_t local_edge(const SumBin& bin, size_t relation, ColumnKind kind, int64_t edge) const;
  void put_on_disk(std::vector<SumGroup>& groups, double share) const;
  int64_t edge_bytes() const;
  int64_t bytes_of(const std::vector<SumGroup>& groups) const;
  static int64_t buffer_bytes(const std::vector<SumGroup>& groups, int64_t sum_stride);
  bool fit(std::vector<SumGroup>& groups, int64_t bytes) const;
  double seconds(const std::vector<SumGroup>& groups, int threads) const;

  std::vector<PlannedRelation> relations_;
  SumLimits limits_;
  std::vector<int64_t> first_bins_;  ///< per type: its first bin in bins_; then the end
  std::vector<SumBin> bins_;
  std::vector<SumPiece> pieces_;
  std::vector<int64_t> sparse_;  ///< per piece: sparse edges
  std::vector<SumGroup> groups_;
  int64_t sum_stride_ = 0;
};

}  // namespace tiering
