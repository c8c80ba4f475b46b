#include <numeric>

#include "sum_plan.hpp"

namespace tiering {

int source_bin_shift(int64_t num_nodes) { return source_bins(num_nodes).shift; }

int64_t high_column_degree(int64_t columns, int64_t num_sources) {
  return high_degree(columns, source_bins(num_sources).num_buckets(), SumLimits{});
}

BinnedCsc::BinnedCsc(const CscView& csc, int64_t num_src, int64_t high_degree, int threads) {
  BinnedEdges binned(csc, {}, num_src, high_degree, 1, threads, [] {});
  const int64_t bins = binned.num_bins();
  int64_t size = 0;
  for (const ColumnKind kind : kColumnKinds) {
    starts[kind] = Buffer<int64_t>((binned.num_blocks(kind) + 1) * bins);
    int64_t* const ends = starts[kind].data() + binned.num_blocks(kind) * bins;
    for (int64_t bin = 0; bin < bins; ++bin) {
      ends[bin] = size + binned.size(kind, bin);
      size = binned.place(kind, bin, size, kLineEdges);
    }
  }
  edges = Buffer<uint32_t>(size, 0);  // gaps between bins, too: tasks write them
  binned.write(csc, {}, {edges.data(), nullptr, std::vector<char>(static_cast<size_t>(2 * bins), 0)}, [] {});
  for (const ColumnKind kind : kColumnKinds)
    for (int64_t bin = 0; bin < bins; ++bin) {
      const int64_t blocks = binned.num_blocks(kind);
      int64_t* const own = starts[kind].data() + bin;
      for (int64_t block = 0; block < blocks; ++block) own[block * bins] = -1;
      binned.visit_blocks(kind, bin, 0, binned.size(kind, bin), [&](int64_t first_rank, int64_t first, int64_t) {
        own[(first_rank >> BinnedEdges::kHalfBits) * bins] = first;
      });
      for (int64_t block = blocks - 1; block >= 0; --block)
        if (own[block * bins] < 0) own[block * bins] = own[(block + 1) * bins];
    }
}

Buffer<int64_t> count_by_bin(const CscView& csc, int64_t num_src, int threads) {
  const BinnedEdges binned(csc, {}, num_src, ColumnRanks::kMaxHighDegree, threads, threads, [] {});
  Buffer<int64_t> counts(binned.num_bins());
  for (int64_t bin = 0; bin < counts.size(); ++bin)
    counts[bin] = binned.size(ColumnKind::kHigh, bin) + binned.size(ColumnKind::kLow, bin);
  return counts;
}

BinSums::BinSums(int64_t num_sources, int shift, std::span<const int64_t> bin_edges, int64_t all_edges,
                 int64_t min_piece, int64_t max_pieces)
    : shift_(shift), num_sources_(num_sources) {
  TIERING_EXPECT(shift >= 0 && shift <= BinnedEdges::kHalfBits, "shift: expected 0..16, found ", shift);
  const int64_t bins = num_sources <= 0 ? 0 : ((num_sources - 1) >> shift) + 1;
  TIERING_EXPECT(static_cast<int64_t>(bin_edges.size()) == bins, "bin_edges: expected ", bins, " numbers, found ",
                 bin_edges.size());
  const int64_t own_edges = std::accumulate(bin_edges.begin(), bin_edges.end(), int64_t{0});
  TIERING_EXPECT(own_edges <= all_edges, "all_edges: expected ", own_edges, " or more, found ", all_edges);
  SumLimits limits;
  if (min_piece > 0) limits.min_piece = min_piece;
  if (max_pieces > 0) limits.max_pieces = max_pieces;
  sums_ = Buffer<double>((bins << shift) + BinnedEdges::kBlockColumns, 0.0);  // whatever 16 bits of a source say
  for (const int64_t edges : bin_edges) {
    const int64_t pieces = pieces_of(edges, all_edges, limits);
    bins_.push_back({edges, pieces, 0, 0, even_cut(edges, static_cast<int>(pieces), 0).second, {}});
  }
}

void BinSums::add(std::span<const uint32_t> edges, std::span<const int64_t> starts,
                  const std::optional<std::vector<std::span<const double>>>& values, int threads) {
  const auto bins = static_cast<int64_t>(bins_.size()), entries = static_cast<int64_t>(starts.size());
  TIERING_EXPECT(bins > 0 && entries >= bins && entries % bins == 0, "starts: expected rows of ", bins, ", found ",
                 entries, " numbers");
  const int64_t blocks = entries / bins - 1, ranks = blocks << BinnedEdges::kHalfBits;
  for (int64_t i = 0; i < entries; ++i)
    TIERING_EXPECT(starts[i] >= 0 && starts[i] <= static_cast<int64_t>(edges.size()) &&
                       (i < bins || starts[i] >= starts[i - bins]),
                   "starts[", i, "] is ", starts[i], ": expected ascending columns, up to ", edges.size());
  if (values) {
    int64_t count = 0;
    for (const auto& piece : *values) count += static_cast<int64_t>(piece.size());
    TIERING_EXPECT(count <= ranks && count > ranks - BinnedEdges::kBlockColumns, "values: expected those of ", blocks,
                   " blocks, found ", count);
    if (values_.size() < ranks) values_ = Buffer<double>(ranks, 0.0);  // whatever 16 bits of a rank say
    double* to = values_.data();
    for (const auto& piece : *values) to = std::copy(piece.begin(), piece.end(), to);
  }
  for_blocks(threads, bins, [&](int64_t bin) {
    Bin& own = bins_[bin];
    double* const sums = sums_.data() + (bin << shift_);
    for (int64_t block = 0; block < blocks; ++block) {
      int64_t at = starts[block * bins + bin];
      const int64_t end = starts[(block + 1) * bins + bin];
      TIERING_EXPECT(own.done + end - at <= own.edges, "bin ", bin, ": expected ", own.edges, " edges, found more");
      while (at < end) {
        if (own.done == own.piece_end) end_piece(own, sums);
        const int64_t to = std::min(end, at + own.piece_end - own.done);
        if (values) add_values(edges.data(), at, to, values_.data() + (block << BinnedEdges::kHalfBits), sums);
        own.done += to - at;
        at = to;
      }
    }
  });
}

/// Adds a piece that is whole to those before, and begins the next.
void BinSums::end_piece(Bin& bin, double* sums) const {
  const int64_t size = int64_t{1} << shift_;
  if (bin.piece == 0)
    bin.total.assign(sums, sums + size);
  else
    for (int64_t i = 0; i < size; ++i) bin.total[i] += sums[i];
  std::fill_n(sums, size, 0.0);
  ++bin.piece;
  bin.piece_end = even_cut(bin.edges, static_cast<int>(bin.pieces), static_cast<int>(bin.piece)).second;
}

Buffer<double> BinSums::take() {
  Buffer<double> sums(num_sources_);
  for (size_t b = 0; b < bins_.size(); ++b) {
    const Bin& bin = bins_[b];
    TIERING_EXPECT(bin.done == bin.edges, "bin ", b, ": expected ", bin.edges, " edges, found ", bin.done);
    const int64_t first = static_cast<int64_t>(b) << shift_;
    for (int64_t i = first; i < std::min(num_sources_, first + (int64_t{1} << shift_)); ++i)
      sums[i] = bin.pieces == 1 ? sums_[i] : bin.total[i - first] + sums_[i];
  }
  return sums;
}

}  // namespace tiering
