// The edges of a CSC in bins by source, for sweeps that stream the edges of one bin after the other while what
// they add to stays in the private cache.
//
// Approach:   non-empty columns are dense or sparse (out_edge_sums.hpp says why), and numbered by rank within
//             their kind. 2^16 ranks form a block, up to 2^16 sources a bin, so that an edge is 16 bits of source
//             and 16 bits of rank. A stable partition (partition.hpp) puts the edges in bins, the kinds apart;
//             within a bin ranks ascend, and marks tell where each block begins.
// Memory:     4 bytes per edge, 8 per non-empty column, 8 per block and bin.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <tiering/buffer.hpp>
#include <tiering/partition.hpp>
#include <tiering/views.hpp>
#include <vector>

namespace tiering {

/// The bins of `num_nodes` sources.
BucketGrid source_bins(int64_t num_nodes);

enum class ColumnKind { kDense, kSparse };
inline constexpr std::array kColumnKinds{ColumnKind::kDense, ColumnKind::kSparse};

class BinnedEdges {
 public:
  /// Source within the bin in the low half, rank within the block in the high half.
  using Edge = uint32_t;
  static constexpr int kHalfBits = 16;
  static constexpr int64_t kBlockColumns = int64_t{1} << kHalfBits;
  static int64_t source(Edge edge) { return edge & (kBlockColumns - 1); }
  static int64_t rank(Edge edge) { return edge >> kHalfBits; }

  /// Bins the edges; columns of at least `dense_degree` are dense. Throws InputError for an index outside
  /// [0, num_src). The indptr must be in order.
  BinnedEdges(const CscView& csc, int64_t num_src, int64_t dense_degree, int threads);

  /// Ids of the columns of a kind, by rank.
  std::span<const int64_t> columns(ColumnKind kind) const { return columns_[place(kind)].span(); }
  int64_t num_blocks(ColumnKind kind) const {
    return (columns_[place(kind)].size() + kBlockColumns - 1) >> kHalfBits;
  }

  /// Number of edges of a kind in a bin.
  int64_t size(ColumnKind kind, int64_t bin) const;

  /// Edges stand at positions; those of a kind and bin lie in [first_position(bin), first_position(bin + 1)).
  const Edge* edges() const { return partition_.data(); }
  int64_t first_position(ColumnKind kind, int64_t bin) const {
    const int64_t at = bucket(kind, bin);
    return at < partition_.grid().num_buckets() ? partition_.begin(at, 0) : partition_.num_places();
  }

  /// Calls f(first, last) for the ranges of positions that hold the edges [from, to) of a kind and bin, in
  /// order.
  template <typename F>
  void visit_runs(ColumnKind kind, int64_t bin, int64_t from, int64_t to, F&& f) const;

  /// The same by block: calls f(first rank of the block, first, last).
  template <typename F>
  void visit_blocks(ColumnKind kind, int64_t bin, int64_t from, int64_t to, F&& f) const;

  /// Calls f(first, last) for the ranges of positions that hold the edges of a kind and block in one of the
  /// bins [first_bin, end_bin).
  template <typename F>
  void visit_bins(ColumnKind kind, int64_t block, int64_t first_bin, int64_t end_bin, F&& f) const;

 private:
  /// Where the edges of a block begin in each bin, within one chunk of the edges.
  struct Mark {
    int64_t block;
    std::vector<int64_t> begins;  ///< per bin, a position
  };
  using Marks = std::vector<Mark>;  ///< blocks ascending, then the end

  static size_t place(ColumnKind kind) { return static_cast<size_t>(kind); }
  int64_t bucket(ColumnKind kind, int64_t bin) const {
    return static_cast<int64_t>(kind) * bins_.num_buckets() + bin;
  }

  void select_columns(std::span<const int64_t> indptr, int64_t dense_degree, int threads);
  template <typename Index>
  Partition<Edge> bin_edges(const CscView& csc, std::span<const Index> indices, int threads);
  template <typename Index, typename Writer>
  void write_edges(std::span<const int64_t> indptr, const Index* indices, int64_t begin, int64_t end,
                   std::array<Marks, 2>& marks, Writer& writer) const;
  template <typename Writer>
  void add_mark(ColumnKind kind, int64_t block, Marks& marks, const Writer& writer) const;
  int64_t rank_at(ColumnKind kind, std::span<const int64_t> indptr, int64_t entry) const;
  template <typename F>
  void scan_kinds(std::span<const int64_t> indptr, int64_t begin, int64_t end, F&& f) const;

  BucketGrid bins_;
  std::array<Buffer<int64_t>, 2> columns_;   ///< per kind
  std::vector<std::array<Marks, 2>> marks_;  ///< per chunk and kind
  Partition<Edge> partition_;
};

template <typename F>
void BinnedEdges::visit_runs(ColumnKind kind, int64_t bin, int64_t from, int64_t to, F&& f) const {
  for (int chunk = 0; chunk < partition_.chunks() && to > 0; ++chunk) {
    const int64_t begin = partition_.begin(bucket(kind, bin), chunk),
                  size = partition_.count(bucket(kind, bin), chunk);
    if (from < size) f(begin + from, begin + std::min(to, size));
    from = std::max<int64_t>(from - size, 0);
    to -= size;
  }
}

template <typename F>
void BinnedEdges::visit_blocks(ColumnKind kind, int64_t bin, int64_t from, int64_t to, F&& f) const {
  const auto b = static_cast<size_t>(bin);
  for (const auto& chunk : marks_) {
    const Marks& marks = chunk[place(kind)];
    for (size_t i = 0; i + 1 < marks.size() && to > 0; ++i) {
      const int64_t begin = marks[i].begins[b], size = marks[i + 1].begins[b] - begin;
      if (from < size) f(marks[i].block << kHalfBits, begin + from, begin + std::min(to, size));
      from = std::max<int64_t>(from - size, 0);
      to -= size;
    }
  }
}

template <typename F>
void BinnedEdges::visit_bins(ColumnKind kind, int64_t block, int64_t first_bin, int64_t end_bin,
                             F&& f) const {
  for (const auto& chunk : marks_) {
    const Marks& marks = chunk[place(kind)];
    const auto at = std::lower_bound(marks.begin(), marks.end() - 1, block,
                                     [](const Mark& m, int64_t wanted) { return m.block < wanted; });
    if (at == marks.end() - 1 || at->block != block) continue;
    for (auto b = static_cast<size_t>(first_bin); b < static_cast<size_t>(end_bin); ++b)
      if (at->begins[b] < (at + 1)->begins[b]) f(at->begins[b], (at + 1)->begins[b]);
  }
}

}  // namespace tiering
