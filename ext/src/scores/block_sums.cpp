#include <numeric>

#include "sum_plan.hpp"

namespace tiering {
namespace {

constexpr int64_t kMostSources = int64_t{1} << 32;

[[noreturn, gnu::cold, gnu::noinline]] void refuse_source(int64_t edge, uint32_t source) {
  refuse_input("sources[", edge, "] is ", source, ": expected edges sorted by bin, and sources below their number");
}

[[noreturn, gnu::cold, gnu::noinline]] void refuse_column(int64_t edge, uint32_t column, size_t count) {
  refuse_input("columns[", edge, "] is ", column, ", but there are ", count, " values");
}

}  // namespace

int source_bin_shift(int64_t num_nodes) { return source_bins(num_nodes).shift; }

int64_t high_column_degree(int64_t columns, int64_t num_sources) {
  return high_degree(columns, source_bins(num_sources).num_buckets(), SumLimits{});
}

BlockSums::BlockSums(int64_t num_sources, int shift, std::span<const int64_t> bin_edges, int64_t all_edges,
                     int64_t min_piece, int64_t max_pieces)
    : shift_(shift) {
  TIERING_EXPECT(num_sources >= 0 && num_sources <= kMostSources, "num_sources: expected 0..2^32, found ", num_sources);
  TIERING_EXPECT(shift >= 0 && shift <= BinnedEdges::kHalfBits, "shift: expected 0..16, found ", shift);
  sums_ = Buffer<double>(num_sources, 0.0);
  SumLimits limits;
  if (min_piece > 0) limits.min_piece = min_piece;
  if (max_pieces > 0) limits.max_pieces = max_pieces;
  const int64_t bins = num_sources == 0 ? 0 : ((num_sources - 1) >> shift) + 1;
  TIERING_EXPECT(static_cast<int64_t>(bin_edges.size()) == bins, "bin_edges: expected ", bins, " numbers, found ",
                 bin_edges.size());
  const int64_t own_edges = std::accumulate(bin_edges.begin(), bin_edges.end(), int64_t{0});
  TIERING_EXPECT(own_edges <= all_edges, "all_edges: expected ", own_edges, " or more, found ", all_edges);
  for (const int64_t edges : bin_edges) {
    const int64_t pieces = pieces_of(edges, all_edges, limits);
    bins_.push_back({edges, pieces, 0, 0, even_cut(edges, static_cast<int>(pieces), 0).second, {}});
  }
}

void BlockSums::add(std::span<const uint32_t> sources, std::span<const uint32_t> columns,
                    const std::optional<std::span<const double>>& values, int threads) {
  TIERING_EXPECT(columns.size() == sources.size(), "columns: expected one for each source, ", sources.size(),
                 ", found ", columns.size());
  const auto bins = static_cast<int64_t>(bins_.size());
  // Of a block that is not sorted, too, the runs follow each other: an edge in the run of another bin is found there.
  const auto begin_of = [&](int64_t bin) {
    return static_cast<size_t>(
        std::partition_point(sources.begin(), sources.end(), [&](uint32_t source) { return source >> shift_ < bin; }) -
        sources.begin());
  };
  if (const size_t end = begin_of(bins); end < sources.size()) refuse_source(static_cast<int64_t>(end), sources[end]);
  for_blocks(threads, bins, [&](int64_t bin) {
    const size_t from = begin_of(bin), count = begin_of(bin + 1) - from;
    if (count > 0)
      add_to(bin, {sources.subspan(from, count), columns.subspan(from, count), static_cast<int64_t>(from)}, values);
  });
}

/// Adds a run, cut where pieces end.
void BlockSums::add_to(int64_t index, const Run& run, const std::optional<std::span<const double>>& values) {
  check_sources(index, run);
  Bin& bin = bins_[index];
  const auto edges = static_cast<int64_t>(run.sources.size());
  TIERING_EXPECT(bin.done + edges <= bin.edges, "bin ", index, ": expected ", bin.edges, " edges, found more");
  for (int64_t at = 0; at < edges;) {
    if (bin.done == bin.piece_end) end_piece(bin, sums_.data() + (index << shift_), size(index));
    const int64_t count = std::min(edges - at, bin.piece_end - bin.done);
    const auto from = static_cast<size_t>(at), part = static_cast<size_t>(count);
    if (values)
      add_values({run.sources.subspan(from, part), run.columns.subspan(from, part), run.first_edge + at}, *values);
    bin.done += count;
    at += count;
  }
}

void BlockSums::check_sources(int64_t index, const Run& run) const {
  const auto first = static_cast<uint32_t>(index << shift_), width = static_cast<uint32_t>(size(index));
  uint32_t most = 0;
  for (const uint32_t source : run.sources) most = std::max(most, source - first);  // those before it wrap around
  if (most < width) return;
  const auto found =
      std::find_if(run.sources.begin(), run.sources.end(), [&](uint32_t source) { return source - first >= width; });
  refuse_source(run.first_edge + (found - run.sources.begin()), *found);
}

/// Adds a run within a piece.
void BlockSums::add_values(const Run& run, std::span<const double> values) {
  double* const own = sums_.data();
  const uint32_t *const sources = run.sources.data(), *const columns = run.columns.data();
  auto ahead = [=](int64_t k) {
    prefetch_stream(sources + k);
    prefetch_stream(columns + k);
  };
  for_stream(0, static_cast<int64_t>(run.sources.size()), ahead, [&](int64_t k) {
    const uint32_t column = columns[k];
    if (column >= values.size()) refuse_column(run.first_edge + k, column, values.size());
    own[sources[k]] += values[column];
  });
}

/// Adds a piece that is whole to those before, and begins the next.
void BlockSums::end_piece(Bin& bin, double* own, int64_t size) const {
  if (bin.piece == 0)
    bin.total.assign(own, own + size);
  else
    for (int64_t i = 0; i < size; ++i) bin.total[i] += own[i];
  std::fill_n(own, size, 0.0);
  ++bin.piece;
  bin.piece_end = even_cut(bin.edges, static_cast<int>(bin.pieces), static_cast<int>(bin.piece)).second;
}

Buffer<double> BlockSums::take() {
  TIERING_EXPECT(!taken_, "the sums were taken already");
  for (size_t b = 0; b < bins_.size(); ++b) {
    Bin& bin = bins_[b];
    TIERING_EXPECT(bin.done == bin.edges, "bin ", b, ": expected ", bin.edges, " edges, found ", bin.done);
    if (bin.pieces == 1) continue;
    double* const own = sums_.data() + (b << shift_);
    const int64_t width = size(static_cast<int64_t>(b));
    for (int64_t i = 0; i < width; ++i) own[i] = bin.total[i] + own[i];
  }
  taken_ = true;
  return std::move(sums_);
}

}  // namespace tiering
