// The columns of a CSC that have edges, of high or of low degree, numbered by rank within their kind.
//
// Memory:     2 bits per column and 16 bytes per 4096, 2 bytes of degree per column of low degree, 8 per other:
//             column_bytes().
#pragma once

#include <array>
#include <bit>
#include <tiering/buffer.hpp>
#include <tiering/parallel.hpp>
#include <tiering/views.hpp>
#include <vector>

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

  /// Number of columns of a kind.
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

}  // namespace tiering
