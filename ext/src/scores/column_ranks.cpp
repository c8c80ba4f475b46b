#include "column_ranks.hpp"

#include <tiering/graph.hpp>
#include <tiering/io/stream.hpp>
#include <tiering/scan_columns.hpp>

namespace tiering {
namespace {

constexpr int64_t kWordBits = 64;

/// Calls f(strip, first column, end) for every strip of columns, from all threads, reading ahead in indptr.
template <typename F>
void for_strips(std::span<const int64_t> indptr, int64_t strip, int threads, F&& f) {
  const int64_t columns = static_cast<int64_t>(indptr.size()) - 1, strips = (columns + strip - 1) / strip;
  for_cuts(threads, strips, [&](int64_t first, int64_t end) {
    ReadAhead ahead(indptr.data() + first * strip, indptr.data() + std::min(columns, end * strip));
    for (int64_t s = first; s < end; ++s) {
      ahead.reach(indptr.data() + s * strip);
      f(s, s * strip, std::min(columns, (s + 1) * strip));
    }
  });
}

}  // namespace

ColumnRanks::ColumnRanks(const CscView& csc, int64_t high_degree, int threads)
    : num_columns_(csc.num_columns()), high_degree_(high_degree) {
  for (auto& bits : bits_) bits = Buffer<uint64_t>((num_columns_ + kWordBits - 1) / kWordBits);
  if (!find_kinds(csc.indptr, threads) || csc.indptr.front() != 0 || csc.indptr.back() != csc.num_edges())
    check_indptr(csc, threads);  // says what is wrong
  high_degrees_ = Buffer<int64_t>(size(ColumnKind::kHigh));
  low_degrees_ = Buffer<uint16_t>(size(ColumnKind::kLow));
}

/// Finds the columns of each kind, and the first rank of each strip. Whether the offsets ascend.
bool ColumnRanks::find_kinds(std::span<const int64_t> indptr, int threads) {
  std::atomic<bool> ascending{true};
  begins_.assign(static_cast<size_t>((num_columns_ + kStrip - 1) / kStrip) + 1, {0, 0});
  for_strips(indptr, kStrip, threads, [&](int64_t strip, int64_t begin, int64_t end) {
    auto& counts = begins_[static_cast<size_t>(strip) + 1];
    int64_t least = 0;
    for (int64_t first = begin; first < end; first += kWordBits) {
      uint64_t high = 0, filled = 0;
      prefetch_stream(&indptr[static_cast<size_t>(first)]);
      for (int64_t v = first; v < std::min(end, first + kWordBits); ++v) {
        const int64_t begin = indptr[static_cast<size_t>(v)],
                      degree = wrapped_difference(indptr[static_cast<size_t>(v) + 1], begin);
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
    if (least < 0) ascending = false;
  });
  for (size_t s = 1; s < begins_.size(); ++s)
    for (size_t k = 0; k < begins_[s].size(); ++k) begins_[s][k] += begins_[s - 1][k];
  return ascending;
}

int64_t ColumnRanks::rank(ColumnKind kind, int64_t column) const {
  const int64_t strip = column / kStrip;
  int64_t rank = begins_[static_cast<size_t>(strip)][kind];
  const uint64_t* const words = bits_[kind].data();
  int64_t word = strip * (kStrip / kWordBits);
  for (; (word + 1) * kWordBits <= column; ++word) rank += std::popcount(words[word]);
  if (column % kWordBits != 0) rank += std::popcount(words[word] & ~(~uint64_t{0} << (column % kWordBits)));
  return rank;
}

}  // namespace tiering
