#include <algorithm>
#include <string>
#include <tiering/block_sums.hpp>
#include <tiering/errors.hpp>
#include <tiering/parallel.hpp>

#include "sum_plan.hpp"

namespace tiering {

int source_bin_shift(int64_t num_nodes) { return source_bins(num_nodes).shift; }

int64_t high_column_degree(int64_t columns, int64_t num_sources) {
  return high_degree(columns, source_bins(num_sources).num_buckets(), SumLimits{});
}

BlockSums::BlockSums(int64_t num_sources, int shift, std::span<const int64_t> bin_edges, int64_t all_edges,
                     int64_t min_piece, int64_t max_pieces)
    : shift_(shift), sums_(num_sources) {
  std::fill_n(sums_.data(), num_sources, 0.0);
  SumLimits limits;
  if (min_piece > 0) limits.min_piece = min_piece;
  if (max_pieces > 0) limits.max_pieces = max_pieces;
  const int64_t bins = num_sources == 0 ? 0 : ((num_sources - 1) >> shift) + 1;
  TIERING_EXPECT(static_cast<int64_t>(bin_edges.size()) == bins,
                 "bin_edges: expected " + std::to_string(bins) + " numbers, found " + std::to_string(bin_edges.size()));
  for (const int64_t edges : bin_edges) {
    const int64_t pieces = pieces_of(edges, all_edges, limits);
    bins_.push_back({edges, pieces, 0, 0, even_cut(edges, static_cast<int>(pieces), 0).second, {}});
  }
}

int64_t BlockSums::size(int64_t bin) const {
  return std::min<int64_t>(int64_t{1} << shift_, sums_.size() - (bin << shift_));
}

void BlockSums::add(std::span<const uint32_t> sources, std::span<const uint32_t> columns,
                    std::span<const double> values, int threads) {
  TIERING_EXPECT(columns.size() == sources.size(), "columns: expected one for each source, " +
                                                       std::to_string(sources.size()) + ", found " +
                                                       std::to_string(columns.size()));
  const auto bin_of = [this](uint32_t source) { return static_cast<int64_t>(source >> shift_); };
  // Who checks the edges of a bin finds any that belong to another.
  for_blocks(threads, static_cast<int64_t>(bins_.size()), [&](int64_t bin) {
    const auto first = std::lower_bound(sources.begin(), sources.end(), bin,
                                        [&](uint32_t source, int64_t wanted) { return bin_of(source) < wanted; });
    const auto end = std::find_if(first, sources.end(), [&](uint32_t source) { return bin_of(source) != bin; });
    const auto from = static_cast<size_t>(first - sources.begin()), count = static_cast<size_t>(end - first);
    if (count > 0) add_to(bin, sources.subspan(from, count), columns.subspan(from, count), values);
  });
}

void BlockSums::add_to(int64_t index, std::span<const uint32_t> sources, std::span<const uint32_t> columns,
                       std::span<const double> values) {
  Bin& bin = bins_[static_cast<size_t>(index)];
  const auto edges = static_cast<int64_t>(sources.size());
  TIERING_EXPECT(bin.done + edges <= bin.edges,
                 "bin " + std::to_string(index) + ": expected " + std::to_string(bin.edges) + " edges, found more");
  double* const own = sums_.data() + (index << shift_);
  const int64_t first = index << shift_, width = size(index);
  for (int64_t at = 0; at < edges;) {
    if (bin.done == bin.piece_end) end_piece(bin, own, width);
    const int64_t stop = std::min(edges, at + bin.piece_end - bin.done);
    bin.done += stop - at;
    for (; at < stop; ++at) {
      const int64_t source = sources[static_cast<size_t>(at)] - first;
      const size_t column = columns[static_cast<size_t>(at)];
      if (values.empty()) continue;
      TIERING_EXPECT(source < width && column < values.size(), "block: source " + std::to_string(source + first) +
                                                                   ", column " + std::to_string(column) +
                                                                   " is out of range");
      own[source] += values[column];
    }
  }
}

/// Adds a piece that is whole to those before, and begins the next.
void BlockSums::end_piece(Bin& bin, double* own, int64_t size) const {
  if (bin.piece == 0)
    bin.total.assign(own, own + size);
  else
    for (int64_t i = 0; i < size; ++i) bin.total[static_cast<size_t>(i)] += own[i];
  std::fill_n(own, size, 0.0);
  ++bin.piece;
  bin.piece_end = even_cut(bin.edges, static_cast<int>(bin.pieces), static_cast<int>(bin.piece)).second;
}

Buffer<double> BlockSums::take() {
  for (size_t b = 0; b < bins_.size(); ++b) {
    Bin& bin = bins_[b];
    TIERING_EXPECT(bin.done == bin.edges, "bin " + std::to_string(b) + ": expected " + std::to_string(bin.edges) +
                                              " edges, found " + std::to_string(bin.done));
    if (bin.pieces == 1) continue;
    double* const own = sums_.data() + (b << shift_);
    const int64_t width = size(static_cast<int64_t>(b));
    for (int64_t i = 0; i < width; ++i) own[i] = bin.total[static_cast<size_t>(i)] + own[i];
  }
  return std::move(sums_);
}

}  // namespace tiering
