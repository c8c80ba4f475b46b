// The edges of a CSC in bins by source, for sweeps that stream the edges of one bin after the other while what they add
// to stays in the private cache. Columns with edges are of high or low degree, and numbered by rank within their kind;
// 2^16 ranks form a block, up to 2^16 sources a bin, so that an edge is 16 bits of source and 16 bits of rank. Edges
// are counted first; where the bins then lie is decided in between (sum_plan.hpp); within a bin ranks ascend, and each
// block's start is kept.
#pragma once

#include <array>
#include <bit>
#include <tiering/io/stream.hpp>
#include <tiering/parallel.hpp>

#include "edge_writer.hpp"

namespace tiering {

/// Whether a column has many edges or few.
enum ColumnKind : size_t { kHigh, kLow };
inline constexpr std::array kColumnKinds{ColumnKind::kHigh, ColumnKind::kLow};

/// Walks over the set bits of a bitmap upwards.
class SetBits {
 public:
  /// Begins at the first set bit that is at least `from`.
  SetBits(std::span<const uint64_t> words, int64_t from)
      : words_(words.data()), size_(words.size()), word_(static_cast<size_t>(from) / 64) {
    if (word_ < size_) bits_ = words_[word_] & (~uint64_t{0} << (from % 64));
  }

  /// The next set bit; -1 behind the last.
  int64_t next() {
    while (bits_ == 0)
      if (++word_ >= size_)
        return -1;
      else
        bits_ = words_[word_];
    const int64_t bit = static_cast<int64_t>(word_) * 64 + std::countr_zero(bits_);
    bits_ &= bits_ - 1;
    return bit;
  }

 private:
  const uint64_t* words_;
  size_t size_, word_;
  uint64_t bits_ = 0;
};

class ColumnRanks {
 public:
  /// The high degrees begin at `high_degree`, which is at most this: the others are kept in two bytes.
  static constexpr int64_t kMaxHighDegree = int64_t{1} << 16;

  /// Degrees are set later. Throws InputError for an indptr that is not in order.
  ColumnRanks(const CscView& csc, int64_t high_degree, int threads);

  /// Sets the degree of a column, by rank.
  void set_degree(ColumnKind kind, int64_t rank, int64_t degree) {
    if (kind == ColumnKind::kHigh)
      high_degrees_[rank] = degree;
    else
      low_degrees_[rank] = static_cast<uint16_t>(degree);
  }

  int64_t size(ColumnKind kind) const { return begins_.back()[kind]; }

  /// The columns of a kind, as bits.
  std::span<const uint64_t> bits(ColumnKind kind) const { return bits_[kind].span(); }

  /// Returns the bytes for `columns` columns, `high` and `low` of each kind.
  static int64_t column_bytes(int64_t columns, int64_t high, int64_t low) {
    return columns / 4 + columns / (kStrip / 16) + 64 + 8 * high + 2 * low;
  }

  /// Columns of a kind below `column`.
  int64_t rank(ColumnKind kind, int64_t column) const;

  /// Calls f(column, rank, degree) for every column of a kind, from all threads.
  template <typename F>
  void for_each(ColumnKind kind, int threads, F&& f) const {
    if (kind == ColumnKind::kHigh)
      visit(kind, high_degrees_, threads, f);
    else
      visit(kind, low_degrees_, threads, f);
  }

 private:
  static constexpr int64_t kStrip = 4096;  ///< columns counted together
  int64_t num_strips() const { return static_cast<int64_t>(begins_.size()) - 1; }

  bool find_kinds(std::span<const int64_t> indptr, int threads);

  template <typename Degree, typename F>
  void visit(ColumnKind kind, const Buffer<Degree>& degrees, int threads, F&& f) const {
    for_cuts(threads, num_strips(), [&](int64_t first, int64_t end) {
      const uint64_t* const words = bits_[kind].data();
      const int64_t end_word = std::min(end * (kStrip / 64), bits_[kind].size());
      int64_t rank = begins_[static_cast<size_t>(first)][kind];
      for (int64_t w = first * (kStrip / 64); w < end_word; ++w)
        for (uint64_t bits = words[w]; bits != 0; bits &= bits - 1, ++rank)
          f(w * 64 + std::countr_zero(bits), rank, static_cast<int64_t>(degrees[rank]));
    });
  }

  int64_t num_columns_, high_degree_;
  std::array<Buffer<uint64_t>, 2> bits_;        ///< per kind
  std::vector<std::array<int64_t, 2>> begins_;  ///< per strip and kind: the first rank; then the end
  Buffer<int64_t> high_degrees_;                ///< by rank
  Buffer<uint16_t> low_degrees_;
};

/// The bins of `num_nodes` sources.
BucketGrid source_bins(int64_t num_nodes);

class BinnedEdges {
 public:
  static constexpr int kHalfBits = 16;
  static constexpr int64_t kBlockColumns = int64_t{1} << kHalfBits;
  static int64_t source(BinnedEdge edge) { return edge & (kBlockColumns - 1); }
  static int64_t rank(BinnedEdge edge) { return edge >> kHalfBits; }

  /// Called now and then from the thread that constructed or writes; what it throws ends that.
  using Poll = std::function<void()>;

  /// Counts the edges; columns of at least `high_degree` edges are of high degree. Throws InputError for an index
  /// outside [0, num_src), or an indptr that is not in order. `file`, if there is one, holds the indices and is read in
  /// their place.
  BinnedEdges(const CscView& csc, const DirectFile& file, int64_t num_src, int64_t high_degree, int chunks, int threads,
              const Poll& poll);

  const ColumnRanks& columns() const { return columns_; }
  int64_t num_bins() const { return bins_.num_buckets(); }
  int64_t num_blocks(ColumnKind kind) const { return (columns_.size(kind) + kBlockColumns - 1) >> kHalfBits; }

  int64_t size(ColumnKind kind, int64_t bin) const;

  /// Gives the edges of a kind and bin their places, from `at` on: runs, one per chunk, that begin at multiples of
  /// `alignment`. Returns the place behind them.
  int64_t place(ColumnKind kind, int64_t bin, int64_t at, int64_t alignment);

  /// Place of the `edge`-th edge of a kind and bin.
  int64_t position(ColumnKind kind, int64_t bin, int64_t edge) const;

  /// Puts the edges at their places. Buckets are the bins with edges of high degree, then those with the others.
  void write(const CscView& csc, const DirectFile& file, const EdgeTargets& targets, const Poll& poll);

  /// Bytes of the starts of `blocks` blocks.
  static int64_t start_bytes(int64_t bins, int64_t blocks, int chunks) {
    return (blocks + 4 * chunks) * bins * static_cast<int64_t>(sizeof(int64_t));  // chunks may share a block
  }

  /// Bytes that a chunk collects before it writes them, per bin and kind.
  static constexpr int64_t kLineBuffer = kLineEdges * sizeof(BinnedEdge) + 56;

  /// Calls f(first, last) for the ranges of places that hold the edges [from, to) of a kind and bin, in order.
  template <typename F>
  void visit_runs(ColumnKind kind, int64_t bin, int64_t from, int64_t to, F&& f) const;

  /// The same by block: calls f(first rank of the block, first, last).
  template <typename F>
  void visit_blocks(ColumnKind kind, int64_t bin, int64_t from, int64_t to, F&& f) const;

  /// Calls f(bin, first, last) for the ranges of places that hold the edges of a kind and block in one of the bins
  /// [first_bin, end_bin).
  template <typename F>
  void visit_bins(ColumnKind kind, int64_t block, int64_t first_bin, int64_t end_bin, F&& f) const;

 private:
  /// Where the edges of a block begin in each bin, within one chunk of the edges.
  struct BlockStart {
    int64_t block;
    std::vector<int64_t> begins;  ///< per bin, a place
  };
  using BlockStarts = std::vector<BlockStart>;  ///< blocks ascending, then the end

  /// A walk over the columns of a kind.
  struct Walk {
    SetBits columns;
    int64_t column, rank;
  };

  int64_t bucket(ColumnKind kind, int64_t bin) const { return static_cast<int64_t>(kind) * bins_.num_buckets() + bin; }

  template <typename Index>
  void count_edges(const CscView& csc, std::span<const Index> indices, const DirectFile& file, const Poll& poll);
  template <typename Index>
  void write_chunk(const CscView& csc, const Index* indices, const DirectFile& file, int chunk, EdgeWriter& writer,
                   const Poll& poll);
  template <typename Index>
  void put_entries(ColumnKind kind, const int64_t* ends, const Index* indices, int64_t first, int64_t last, Walk& walk,
                   BlockStarts& starts, EdgeWriter& writer);
  Walk walk_from(ColumnKind kind, int64_t column) const;
  void add_start(ColumnKind kind, int64_t block, BlockStarts& starts, const EdgeWriter& writer) const;
  int64_t column_at(std::span<const int64_t> indptr, int64_t entry) const;
  template <typename F>
  void scan_kinds(std::span<const int64_t> indptr, int64_t begin, int64_t end, F&& f) const;

  BucketGrid bins_;
  ColumnRanks columns_;
  std::vector<std::array<BlockStarts, 2>> starts_;  ///< per chunk and kind
  EdgeRuns runs_;
};

template <typename F>
void BinnedEdges::visit_runs(ColumnKind kind, int64_t bin, int64_t from, int64_t to, F&& f) const {
  for (int chunk = 0; chunk < runs_.chunks && to > 0; ++chunk) {
    const auto [begin, size] = runs_.at(bucket(kind, bin), chunk);
    if (from < size) f(begin + from, begin + std::min(to, size));
    from = std::max<int64_t>(from - size, 0);
    to -= size;
  }
}

template <typename F>
void BinnedEdges::visit_blocks(ColumnKind kind, int64_t bin, int64_t from, int64_t to, F&& f) const {
  const auto b = static_cast<size_t>(bin);
  for (const auto& chunk : starts_) {
    const BlockStarts& starts = chunk[kind];
    for (size_t i = 0; i + 1 < starts.size() && to > 0; ++i) {
      const int64_t begin = starts[i].begins[b], size = starts[i + 1].begins[b] - begin;
      if (from < size) f(starts[i].block << kHalfBits, begin + from, begin + std::min(to, size));
      from = std::max<int64_t>(from - size, 0);
      to -= size;
    }
  }
}

template <typename F>
void BinnedEdges::visit_bins(ColumnKind kind, int64_t block, int64_t first_bin, int64_t end_bin, F&& f) const {
  for (const auto& chunk : starts_) {
    const BlockStarts& starts = chunk[kind];
    const auto at = std::lower_bound(starts.begin(), starts.end() - 1, block,
                                     [](const BlockStart& m, int64_t wanted) { return m.block < wanted; });
    if (at == starts.end() - 1 || at->block != block) continue;
    for (auto b = static_cast<size_t>(first_bin); b < static_cast<size_t>(end_bin); ++b)
      if (at->begins[b] < (at + 1)->begins[b]) f(static_cast<int64_t>(b), at->begins[b], (at + 1)->begins[b]);
  }
}

}  // namespace tiering
