// The edges of a CSC in bins by source, for sweeps that stream the edges of one bin after the other while what they add
// to stays in the private cache. Columns with edges are of high or low degree, and numbered by rank within their kind;
// 2^16 ranks form a block, up to 2^16 sources a bin, so that an edge is 16 bits of source and 16 bits of rank. Edges
// are counted first; where the bins then lie is decided in between (sum_plan.hpp); within a bin ranks ascend, and each
// block's start is kept. Kernels are not inlined into each other: that would take 8 % longer.
#pragma once

#include <array>
#include <bit>
#include <tiering/io/stream.hpp>
#include <tiering/scan_columns.hpp>

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
  ColumnRanks(const CscView& csc, int64_t high_degree, int threads)
      : num_columns_(csc.num_columns()), high_degree_(high_degree) {
    for (auto& bits : bits_) bits = Buffer<uint64_t>((num_columns_ + kWordBits - 1) / kWordBits);
    if (!find_kinds(csc.indptr, threads) || csc.indptr.front() != 0 || csc.indptr.back() != csc.num_edges())
      check_indptr(csc, threads);  // says what is wrong
    high_degrees_ = Buffer<int64_t>(size(ColumnKind::kHigh));
    low_degrees_ = Buffer<uint16_t>(size(ColumnKind::kLow));
  }

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
  int64_t rank(ColumnKind kind, int64_t column) const {
    const int64_t strip = column / kStrip;
    int64_t rank = begins_[strip][kind];
    const uint64_t* const words = bits_[kind].data();
    int64_t word = strip * (kStrip / kWordBits);
    for (; (word + 1) * kWordBits <= column; ++word) rank += std::popcount(words[word]);
    if (column % kWordBits != 0) rank += std::popcount(words[word] & ~(~uint64_t{0} << (column % kWordBits)));
    return rank;
  }

  /// Calls f(column, rank, degree) for every column of a kind, from all threads.
  template <typename F>
  void for_each(ColumnKind kind, int threads, F&& f) const {
    if (kind == ColumnKind::kHigh)
      visit(kind, high_degrees_, threads, f);
    else
      visit(kind, low_degrees_, threads, f);
  }

 private:
  static constexpr int64_t kStrip = 4096, kWordBits = 64;  ///< columns counted together, and of a word

  /// Finds the columns of each kind, and the first rank of each strip. Whether the offsets ascend.
  [[gnu::noinline]] bool find_kinds(std::span<const int64_t> indptr, int threads) {
    std::atomic<bool> ascending{true};
    const int64_t strips = (num_columns_ + kStrip - 1) / kStrip;
    begins_.assign(static_cast<size_t>(strips) + 1, {0, 0});
    for_cuts(threads, strips, [&](int64_t first_strip, int64_t end_strip) {
      ReadAhead ahead(indptr.data() + first_strip * kStrip, indptr.data() + std::min(num_columns_, end_strip * kStrip));
      int64_t least = 0;
      for (int64_t strip = first_strip; strip < end_strip; ++strip) {
        ahead.reach(indptr.data() + strip * kStrip);
        auto& counts = begins_[static_cast<size_t>(strip) + 1];
        const int64_t end = std::min(num_columns_, (strip + 1) * kStrip);
        for (int64_t first = strip * kStrip; first < end; first += kWordBits) {
          uint64_t high = 0, filled = 0;
          prefetch_stream(&indptr[first]);
          for (int64_t v = first; v < std::min(end, first + kWordBits); ++v) {
            const int64_t begin = indptr[v], degree = wrapped_difference(indptr[static_cast<size_t>(v) + 1], begin);
            least = std::min({least, begin, degree});  // no difference of offsets of 0 or more is wrapped
            high |= static_cast<uint64_t>(degree >= high_degree_) << (v - first);
            filled |= static_cast<uint64_t>(degree > 0) << (v - first);
          }
          const std::array words{high, filled & ~high};
          for (size_t k = 0; k < words.size(); ++k) {
            bits_[k][first / kWordBits] = words[k];
            counts[k] += std::popcount(words[k]);
          }
        }
      }
      if (least < 0) ascending = false;
    });
    for (size_t s = 1; s < begins_.size(); ++s)
      for (size_t k = 0; k < begins_[s].size(); ++k) begins_[s][k] += begins_[s - 1][k];
    return ascending;
  }

  template <typename Degree, typename F>
  void visit(ColumnKind kind, const Buffer<Degree>& degrees, int threads, F&& f) const {
    for_cuts(threads, static_cast<int64_t>(begins_.size()) - 1, [&](int64_t first, int64_t end) {
      const uint64_t* const words = bits_[kind].data();
      const int64_t end_word = std::min(end * (kStrip / 64), bits_[kind].size());
      int64_t rank = begins_[first][kind];
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
              const Poll& poll)
      : bins_(source_bins(num_src)),
        columns_(csc, high_degree, threads),
        starts_(static_cast<size_t>(chunks)),
        runs_({2 * (bins_.num_buckets() << bins_.shift), bins_.shift}, chunks) {
    csc.indices.visit([&](const auto& indices) { count_edges(csc, indices, file, poll); });
  }

  const ColumnRanks& columns() const { return columns_; }
  int64_t num_bins() const { return bins_.num_buckets(); }
  int64_t num_blocks(ColumnKind kind) const { return (columns_.size(kind) + kBlockColumns - 1) >> kHalfBits; }

  int64_t size(ColumnKind kind, int64_t bin) const {
    int64_t size = 0;
    for (int chunk = 0; chunk < runs_.chunks; ++chunk) size += runs_.at(bucket(kind, bin), chunk).count;
    return size;
  }

  /// Gives the edges of a kind and bin their places, from `at` on: runs, one per chunk, that begin at multiples of
  /// `alignment`. Returns the place behind them.
  int64_t place(ColumnKind kind, int64_t bin, int64_t at, int64_t alignment) {
    for (int chunk = 0; chunk < runs_.chunks; ++chunk) {
      auto& run = runs_.at(bucket(kind, bin), chunk);
      run.begin = at;
      at += round_up(run.count, alignment);
    }
    return at;
  }

  /// Place of the `edge`-th edge of a kind and bin.
  int64_t position(ColumnKind kind, int64_t bin, int64_t edge) const {
    int64_t place = 0;
    visit_runs(kind, bin, edge, edge + 1, [&](int64_t first, int64_t) { place = first; });
    return place;
  }

  /// Puts the edges at their places. Buckets are the bins with edges of high degree, then those with the others.
  void write(const CscView& csc, const DirectFile& file, const EdgeTargets& targets, const Poll& poll) {
    csc.indices.visit([&](const auto& indices) {
      run_team(runs_.chunks, [&](int chunk) {
        EdgeWriter writer(runs_, targets, chunk);
        write_chunk(csc, indices.data(), file, chunk, writer, poll);
        writer.finish();
      });
    });
  }

  /// Bytes of the starts of `blocks` blocks.
  static int64_t start_bytes(int64_t bins, int64_t blocks, int chunks) {
    return (blocks + 4 * chunks) * bins * static_cast<int64_t>(sizeof(int64_t));  // chunks may share a block
  }

  /// Bytes that a chunk collects before it writes them, per bin and kind.
  static constexpr int64_t kLineBuffer = kLineEdges * sizeof(BinnedEdge) + 56;

  /// Calls f(first, last) for the ranges of places that hold the edges [from, to) of a kind and bin, in order.
  template <typename F>
  void visit_runs(ColumnKind kind, int64_t bin, int64_t from, int64_t to, F&& f) const {
    for (int chunk = 0; chunk < runs_.chunks && to > 0; ++chunk) {
      const auto [begin, size] = runs_.at(bucket(kind, bin), chunk);
      if (from < size) f(begin + from, begin + std::min(to, size));
      from = std::max<int64_t>(from - size, 0);
      to -= size;
    }
  }

  /// The same by block: calls f(first rank of the block, first, last).
  template <typename F>
  void visit_blocks(ColumnKind kind, int64_t bin, int64_t from, int64_t to, F&& f) const {
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

  /// Calls f(bin, first, last) for the ranges of places that hold the edges of a kind and block in one of the bins
  /// [first_bin, end_bin).
  template <typename F>
  void visit_bins(ColumnKind kind, int64_t block, int64_t first_bin, int64_t end_bin, F&& f) const {
    for (const auto& chunk : starts_) {
      const BlockStarts& starts = chunk[kind];
      const auto at = std::lower_bound(starts.begin(), starts.end() - 1, block,
                                       [](const BlockStart& m, int64_t wanted) { return m.block < wanted; });
      if (at == starts.end() - 1 || at->block != block) continue;
      for (auto b = static_cast<size_t>(first_bin); b < static_cast<size_t>(end_bin); ++b)
        if (at->begins[b] < (at + 1)->begins[b]) f(static_cast<int64_t>(b), at->begins[b], (at + 1)->begins[b]);
    }
  }

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
  [[gnu::noinline]] void count_edges(const CscView& csc, std::span<const Index> indices, const DirectFile& file,
                                     const Poll& poll) {
    const int64_t num_src = bins_.num_keys, all_keys = bins_.num_buckets() << bins_.shift;
    for_cuts(runs_.chunks, csc.num_edges(), [&](int64_t begin, int64_t end, int chunk) {
      std::vector<int64_t> counts(static_cast<size_t>(runs_.grid.num_buckets()), 0);
      for_steps(file, indices.data(), begin, end, [&](const Index* read, int64_t from, int64_t to) {
        if (begin == 0) poll();
        scan_kinds(csc.indptr, from, to, [&](ColumnKind kind, int64_t first, int64_t last) {
          const int64_t shifted = static_cast<int64_t>(kind) * all_keys;
          scan_indices(read, num_src, first, last,
                       [counter = counts.data(), shifted, shift = bins_.shift](int64_t source) {
                         ++counter[(shifted + source) >> shift];
                       });
        });
      });
      for (size_t b = 0; b < counts.size(); ++b) runs_.at(static_cast<int64_t>(b), chunk).count = counts[b];
    });
  }

  /// Sends the entries of a chunk to their bins.
  template <typename Index>
  [[gnu::noinline]] void write_chunk(const CscView& csc, const Index* indices, const DirectFile& file, int chunk,
                                     EdgeWriter& writer, const Poll& poll) {
    const auto [begin, end] = even_cut(csc.num_edges(), runs_.chunks, chunk);
    const int64_t start = column_at(csc.indptr, begin);
    auto& starts = starts_[chunk];
    std::array walks{walk_from(ColumnKind::kHigh, start), walk_from(ColumnKind::kLow, start)};
    for_steps(file, indices, begin, end, [&](const Index* read, int64_t from, int64_t to) {
      if (chunk == 0) poll();
      scan_kinds(csc.indptr, from, to, [&](ColumnKind kind, int64_t first, int64_t last) {
        put_entries(kind, csc.indptr.data() + 1, read, first, last, walks[kind], starts[kind], writer);
      });
    });
    for (const ColumnKind kind : kColumnKinds) add_start(kind, -1, starts[kind], writer);
  }

  /// Sends the entries [first, last), all of columns of one kind, from the walk's column on.
  template <typename Index>
  [[gnu::noinline]] void put_entries(ColumnKind kind, const int64_t* ends, const Index* indices, int64_t first,
                                     int64_t last, Walk& walk, BlockStarts& starts, EdgeWriter& writer) {
    const int64_t shifted = bucket(kind, 0) << bins_.shift;
    const BinnedEdge source_mask = (BinnedEdge{1} << bins_.shift) - 1;
    auto ahead = [&](int64_t k) { prefetch_stream(indices + k); };
    while (first < last) {
      prefetch_stream(ends + walk.column);
      if (starts.empty() || starts.back().block != walk.rank >> kHalfBits)
        add_start(kind, walk.rank >> kHalfBits, starts, writer);
      const int64_t stop = std::min(last, ends[walk.column]);
      for_stream(first, stop, ahead, [&, contributor = static_cast<BinnedEdge>(walk.rank) << kHalfBits](int64_t k) {
        writer.put(shifted + indices[k], (static_cast<BinnedEdge>(indices[k]) & source_mask) | contributor);
      });
      first = stop;
      if (stop == ends[walk.column]) {
        columns_.set_degree(kind, walk.rank, stop - ends[walk.column - 1]);
        walk.column = walk.columns.next();
        ++walk.rank;
      }
    }
  }

  Walk walk_from(ColumnKind kind, int64_t column) const {
    SetBits columns(columns_.bits(kind), column);
    const int64_t first = columns.next();
    return {columns, first, columns_.rank(kind, column)};
  }

  void add_start(ColumnKind kind, int64_t block, BlockStarts& starts, const EdgeWriter& writer) const {
    const auto cursors =
        writer.next().subspan(static_cast<size_t>(bucket(kind, 0)), static_cast<size_t>(bins_.num_buckets()));
    starts.push_back({block, {cursors.begin(), cursors.end()}});
  }

  /// First column that ends behind `entry`.
  int64_t column_at(std::span<const int64_t> indptr, int64_t entry) const {
    return std::upper_bound(indptr.begin() + 1, indptr.end(), entry) - indptr.begin() - 1;
  }

  /// Calls f(kind, first, last) for the entries [begin, end) in order, cut where the kind of column changes and
  /// where a column of high degree ends.
  template <typename F>
  void scan_kinds(std::span<const int64_t> indptr, int64_t begin, int64_t end, F&& f) const {
    SetBits high(columns_.bits(ColumnKind::kHigh), column_at(indptr, begin));
    for (int64_t at = begin; at < end;) {
      const int64_t column = high.next(), first = column < 0 ? end : std::clamp(indptr[column], at, end);
      if (at < first) f(ColumnKind::kLow, at, first);
      if (column < 0) break;
      at = std::min(indptr[column + 1], end);
      if (first < at) f(ColumnKind::kHigh, first, at);
    }
  }

  BucketGrid bins_;
  ColumnRanks columns_;
  std::vector<std::array<BlockStarts, 2>> starts_;  ///< per chunk and kind
  EdgeRuns runs_;
};

/// Adds the values of the edges [first, last) of a bin, whose columns are of one block with these values, to its sums.
inline void add_values(const BinnedEdge* edges, int64_t first, int64_t last, const double* values, double* sums) {
  const auto ahead = [=](int64_t k) { prefetch_stream(edges + k); };
  for_stream(first, last, ahead,
             [=](int64_t k) { sums[BinnedEdges::source(edges[k])] += values[BinnedEdges::rank(edges[k])]; });
}

inline BucketGrid source_bins(int64_t num_nodes) {
  constexpr int64_t kWantedBins = 64;
  return choose_grid(num_nodes, kWantedBins, BinnedEdges::kHalfBits, num_nodes);
}

}  // namespace tiering
