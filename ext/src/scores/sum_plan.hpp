// How the work and the memory of sums over out-edges are cut. Bins: the sources of a type, up to 2^16 each, whose sums
// fit the private cache. Pieces of the edges of a bin: units of work, cut by the graph alone, for the sums depend on
// them in their last bits. Spilled: every k-th bin, so that disk and processor are busy side by side. Groups: pieces in
// a row whose edges of low degree are expanded together and whose spilled edges are read together; cut by memory, as
// the sums do not depend on them.
#pragma once

#include <tiering/scores.hpp>

#include "binned_edges.hpp"

namespace tiering {

/// Where the work is cut. The sums depend on all of these in their last bits.
struct SumLimits {
  int64_t min_piece = int64_t{1} << 20;       ///< edges: a bin of more may be cut
  int64_t max_pieces = 256;                   ///< a piece has at least all edges / max_pieces
  int64_t cached_columns = int64_t{1} << 17;  ///< of a relation: all are of high degree, their values stay in the cache
};

inline constexpr int64_t kEdgeBytes = sizeof(BinnedEdge), kValueBytes = sizeof(double);
/// Groups where there is memory enough.
inline constexpr int64_t kSumGroups = 4;
/// Bytes of a group per edge: the value of one of low degree and twice a spilled one, as the next group is read
/// meanwhile; and in addition, as reads begin and end on pages.
inline constexpr int64_t kGroupEdgeBytes = kValueBytes + 2 * kEdgeBytes,
                         kGroupPageBytes = DoubleBuffer::memory_bytes(2 * kScratchAlignment);

/// In-degree from which a column is of high degree: then a bin uses about every cache line of such columns' values.
int64_t high_degree(int64_t columns, int64_t bins, const SumLimits& limits);

/// Into how many pieces of even size a bin of `edges` of `all_edges` is cut.
int64_t pieces_of(int64_t edges, int64_t all_edges, const SumLimits& limits);

/// The sizes of a relation from which its memory follows.
struct RelationShape {
  int64_t columns, bins, edges;
  int64_t high, low;  ///< columns of high degree, and of low
  int64_t low_edges;  ///< edges of the latter

  /// Bytes that stay, whatever lies on disk: columns, their values and the starts of blocks.
  int64_t kept_bytes(int chunks) const;
};

/// How the bytes for edges and buffers are shared out, all counted in edges.
struct SumShares {
  int64_t resident;  ///< that may stay in memory
  int64_t group;     ///< of low degree, or spilled, at most in a group, unless one piece has more

  /// `edges`, of which `low` are of low degree, in pieces of at most `piece`.
  static SumShares of(int64_t bytes, int64_t edges, int64_t low, int64_t piece);
};

struct SumBin {
  int type;
  int64_t index;  ///< among the bins of the type
  int64_t edges;
  int64_t pieces;
  bool spilled = false;
};

/// Edges [from, to) of a bin: all relations in a row, the columns of high degree of each before the others.
struct SumPiece {
  int64_t bin, index, from, to;
  int64_t turn;  ///< among the pieces of bins that have several
};

/// Places in a row.
struct Places {
  int64_t first = 0, end = 0;

  int64_t size() const { return end - first; }
  /// Takes in places behind those that are here.
  void extend(int64_t from, int64_t to) {
    if (from == to) return;
    if (first == end) first = from;
    end = to;
  }
};

struct SumGroup {
  int64_t first_piece, end_piece;
  Places values;   ///< of its edges of low degree; see SumPlan::value_shift
  Places spilled;  ///< in the scratch file, whole pages
};

/// Bytes that sums of bins take: one per thread, and one that pieces are added to.
int64_t sum_bytes(int threads, int64_t stride);

int64_t piece_places(int64_t largest, size_t relations, int chunks);

class SumPlan {
 public:
  struct Relation {
    int src_type;
    BinnedEdges* edges;
  };

  /// Cuts bins and pieces. The relations must outlive the plan.
  SumPlan(const std::vector<BucketGrid>& grids, std::vector<Relation> relations, int chunks, const SumLimits& limits)
      : relations_(std::move(relations)), chunks_(chunks), limits_(limits) {
    for (size_t t = 0; t < grids.size(); ++t) {
      first_bins_.push_back(static_cast<int64_t>(bins_.size()));
      for (int64_t b = 0; b < grids[t].num_buckets(); ++b) {
        SumBin bin{static_cast<int>(t), b, 0, 1};
        for (const auto& r : relations_)
          if (r.src_type == bin.type)
            for (const ColumnKind kind : kColumnKinds) bin.edges += r.edges->size(kind, b);
        bins_.push_back(bin);
        sum_stride_ = std::max(sum_stride_, grids[t].end_key(b) - grids[t].first_key(b));
      }
    }
    first_bins_.push_back(static_cast<int64_t>(bins_.size()));
    cut_pieces();
  }

  const std::vector<SumBin>& bins() const { return bins_; }
  const std::vector<SumPiece>& pieces() const { return pieces_; }
  const std::vector<SumGroup>& groups() const { return groups_; }

  /// Decides what is spilled, gives all edges their places, and cuts groups, such that edges and buffers take at most
  /// `bytes`, or as little as they can.
  void fit(int64_t bytes) {
    place();
    int64_t low = 0;
    for (const auto& r : relations_)
      for (int64_t b = 0; b < r.edges->num_bins(); ++b) low += r.edges->size(ColumnKind::kLow, b);
    int64_t largest = limits_.min_piece;
    for (const SumPiece& piece : pieces_) largest = std::max(largest, piece.to - piece.from);
    const SumShares shares =
        SumShares::of(bytes, num_resident_, low, piece_places(largest, relations_.size(), chunks_));
    if (shares.resident < num_resident_) spill(shares.resident);
    cut_groups(shares.group);
  }

  /// Places in memory and in the scratch file.
  int64_t num_resident() const { return num_resident_; }
  int64_t num_spilled() const { return num_spilled_; }

  /// Whether each bucket of a relation (see BinnedEdges::write) is spilled.
  std::vector<char> spilled_buckets(size_t relation) const {
    std::vector<char> spilled;
    for (size_t kind = 0; kind < kColumnKinds.size(); ++kind)
      for (int64_t b = 0; b < relations_[relation].edges->num_bins(); ++b)
        spilled.push_back(own_bin(relation, b).spilled);
    return spilled;
  }

  /// The bins of a relation's sources that are in the group, counted within the type.
  std::pair<int64_t, int64_t> own_bins(const SumGroup& group, size_t relation) const {
    const auto type = static_cast<size_t>(relations_[relation].src_type);
    const int64_t first = first_bins_[type], count = first_bins_[type + 1] - first, low = at(group.first_piece).bin,
                  high = at(group.end_piece - 1).bin;
    return {std::clamp<int64_t>(low - first, 0, count), std::clamp<int64_t>(high + 1 - first, 0, count)};
  }

  const SumBin& own_bin(size_t relation, int64_t bin) const {
    return bins_[first_bins_[relations_[relation].src_type] + bin];
  }

  /// The distance from the position of an edge of low degree to that of its value among the values of all groups.
  int64_t value_shift(size_t relation, int64_t bin) const { return value_shifts_[relation][bin]; }

  /// Doubles between the sums of one bin and the next.
  int64_t sum_stride() const { return sum_stride_; }

  /// Calls f(relation, kind, from, to) for the edges of a piece in order: [from, to) among those of a relation and
  /// kind in its bin.
  template <typename F>
  void visit_parts(const SumPiece& piece, F&& f) const {
    const SumBin& bin = bins_[piece.bin];
    int64_t before = 0;
    for (size_t r = 0; r < relations_.size(); ++r) {
      if (relations_[r].src_type != bin.type) continue;
      for (const ColumnKind kind : kColumnKinds) {
        const int64_t size = relations_[r].edges->size(kind, bin.index),
                      from = std::clamp<int64_t>(piece.from - before, 0, size),
                      to = std::clamp<int64_t>(piece.to - before, 0, size);
        if (from < to) f(r, kind, from, to);
        before += size;
      }
    }
  }

 private:
  const SumPiece& at(int64_t piece) const { return pieces_[piece]; }

  /// Cuts the bins of many edges into pieces: no unit of work is larger than that.
  void cut_pieces() {
    int64_t all_edges = 0, turn = 0;
    for (const SumBin& bin : bins_) all_edges += bin.edges;
    for (size_t b = 0; b < bins_.size(); ++b) {
      SumBin& bin = bins_[b];
      bin.pieces = pieces_of(bin.edges, all_edges, limits_);
      for (int64_t p = 0; p < bin.pieces; ++p) {
        const auto [from, to] = even_cut(bin.edges, static_cast<int>(bin.pieces), static_cast<int>(p));
        pieces_.push_back({static_cast<int64_t>(b), p, from, to, bin.pieces > 1 ? turn++ : -1});
      }
    }
  }

  /// Spills bins, evenly spread, until at most `resident` edges stay in memory.
  void spill(int64_t resident) {
    int64_t all = 0;
    for (const SumBin& bin : bins_) all += bin.edges;
    // Runs are padded: the share grows until what they take in memory fits, too.
    for (double share = 1 - static_cast<double>(resident) / static_cast<double>(all);; share += 0.01) {
      double due = 0;
      for (SumBin& bin : bins_) {
        const auto edges = static_cast<double>(bin.edges);
        due += share * edges;
        bin.spilled = bin.edges > 0 && due >= edges / 2;
        if (bin.spilled) due -= edges;
      }
      place();
      if (num_resident_ <= resident || share >= 1) return;
    }
  }

  /// Gives all edges their places: bin after bin, in the order in which they are added.
  void place() {
    int64_t value = 0;
    num_resident_ = num_spilled_ = 0;
    value_shifts_.assign(relations_.size(), {});
    for (const SumBin& bin : bins_) {
      const int64_t alignment = bin.spilled ? kPageEdges : kLineEdges;
      int64_t& end = bin.spilled ? num_spilled_ : num_resident_;
      for (size_t r = 0; r < relations_.size(); ++r) {
        if (relations_[r].src_type != bin.type) continue;
        end = relations_[r].edges->place(ColumnKind::kHigh, bin.index, end, alignment);
        const int64_t begin = end;
        value_shifts_[r].push_back(value - begin);
        end = relations_[r].edges->place(ColumnKind::kLow, bin.index, begin, alignment);
        value += end - begin;
      }
    }
  }

  /// Cuts pieces in a row into groups, such that none has more than `most` edges of low degree, or spilled, unless one
  /// piece alone has.
  void cut_groups(int64_t most) {
    groups_.clear();
    for (int64_t p = 0; p < static_cast<int64_t>(pieces_.size()); ++p) {
      const SumGroup next = alone(p);
      SumGroup whole = groups_.empty() ? next : groups_.back();
      whole.end_piece = p + 1;
      whole.values.extend(next.values.first, next.values.end);
      whole.spilled.extend(next.spilled.first, next.spilled.end);
      if (!groups_.empty() && std::max(whole.values.size(), whole.spilled.size()) <= most)
        groups_.back() = whole;
      else
        groups_.push_back(next);
    }
  }

  /// A group of one piece.
  SumGroup alone(int64_t piece) const {
    SumGroup group{piece, piece + 1, {}, {}};
    const SumBin& bin = bins_[at(piece).bin];
    visit_parts(at(piece), [&](size_t r, ColumnKind kind, int64_t from, int64_t to) {
      const BinnedEdges& edges = *relations_[r].edges;
      const int64_t begin = edges.position(kind, bin.index, from), end = edges.position(kind, bin.index, to - 1) + 1,
                    shift = value_shift(r, bin.index);
      if (kind == ColumnKind::kLow) group.values.extend(begin + shift, end + shift);
      if (bin.spilled) group.spilled.extend(round_down(begin, kPageEdges), round_up(end, kPageEdges));
    });
    return group;
  }

  std::vector<Relation> relations_;
  int chunks_;
  SumLimits limits_;
  std::vector<int64_t> first_bins_;  ///< per type: its first bin in bins_; then the end
  std::vector<SumBin> bins_;
  std::vector<SumPiece> pieces_;
  std::vector<std::vector<int64_t>> value_shifts_;  ///< per relation and bin
  std::vector<SumGroup> groups_;
  int64_t sum_stride_ = 0, num_resident_ = 0, num_spilled_ = 0;
};

}  // namespace tiering
