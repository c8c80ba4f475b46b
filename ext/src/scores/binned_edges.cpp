#include "binned_edges.hpp"

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

constexpr int64_t kWantedBins = 64;

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

BucketGrid source_bins(int64_t num_nodes) {
  return choose_grid(num_nodes, kWantedBins, BinnedEdges::kHalfBits, num_nodes);
}

BinnedEdges::BinnedEdges(const CscView& csc, const DirectFile& file, int64_t num_src, int64_t high_degree, int chunks,
                         int threads, const Poll& poll)
    : bins_(source_bins(num_src)),
      columns_(csc, high_degree, threads),
      starts_(static_cast<size_t>(chunks)),
      runs_({2 * (bins_.num_buckets() << bins_.shift), bins_.shift}, chunks) {
  csc.indices.visit([&](const auto& indices) { count_edges(csc, indices, file, poll); });
}

int64_t BinnedEdges::size(ColumnKind kind, int64_t bin) const {
  int64_t size = 0;
  for (int chunk = 0; chunk < runs_.chunks; ++chunk) size += runs_.at(bucket(kind, bin), chunk).count;
  return size;
}

int64_t BinnedEdges::position(ColumnKind kind, int64_t bin, int64_t edge) const {
  const int64_t b = bucket(kind, bin);
  int chunk = 0;
  for (; chunk + 1 < runs_.chunks && edge >= runs_.at(b, chunk).count; ++chunk) edge -= runs_.at(b, chunk).count;
  return runs_.at(b, chunk).begin + edge;
}

int64_t BinnedEdges::place(ColumnKind kind, int64_t bin, int64_t at, int64_t alignment) {
  for (int chunk = 0; chunk < runs_.chunks; ++chunk) {
    auto& run = runs_.at(bucket(kind, bin), chunk);
    run.begin = at;
    at += round_up(run.count, alignment);
  }
  return at;
}

/// First column that ends behind `entry`.
int64_t BinnedEdges::column_at(std::span<const int64_t> indptr, int64_t entry) const {
  return std::upper_bound(indptr.begin() + 1, indptr.end(), entry) - indptr.begin() - 1;
}

/// Calls f(kind, first, last) for the entries [begin, end) in order, cut where the kind of column changes and
/// where a column of high degree ends.
template <typename F>
void BinnedEdges::scan_kinds(std::span<const int64_t> indptr, int64_t begin, int64_t end, F&& f) const {
  SetBits high(columns_.bits(ColumnKind::kHigh), column_at(indptr, begin));
  for (int64_t at = begin; at < end;) {
    const int64_t column = high.next(), first = column < 0 ? end : std::clamp(indptr[column], at, end);
    if (at < first) f(ColumnKind::kLow, at, first);
    if (column < 0) break;
    at = std::min(indptr[column + 1], end);
    if (first < at) f(ColumnKind::kHigh, first, at);
  }
}

template <typename Index>
void BinnedEdges::count_edges(const CscView& csc, std::span<const Index> indices, const DirectFile& file,
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

void BinnedEdges::write(const CscView& csc, const DirectFile& file, const EdgeTargets& targets, const Poll& poll) {
  csc.indices.visit([&](const auto& indices) {
    run_team(runs_.chunks, [&](int chunk) {
      EdgeWriter writer(runs_, targets, chunk);
      write_chunk(csc, indices.data(), file, chunk, writer, poll);
      writer.finish();
    });
  });
}

BinnedEdges::Walk BinnedEdges::walk_from(ColumnKind kind, int64_t column) const {
  SetBits columns(columns_.bits(kind), column);
  const int64_t first = columns.next();
  return {columns, first, columns_.rank(kind, column)};
}

/// Sends the entries of a chunk to their bins.
template <typename Index>
void BinnedEdges::write_chunk(const CscView& csc, const Index* indices, const DirectFile& file, int chunk,
                              EdgeWriter& writer, const Poll& poll) {
  const auto [begin, end] = even_cut(csc.num_edges(), runs_.chunks, chunk);
  const int64_t start = column_at(csc.indptr, begin);
  auto& starts = starts_[static_cast<size_t>(chunk)];
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
void BinnedEdges::put_entries(ColumnKind kind, const int64_t* ends, const Index* indices, int64_t first, int64_t last,
                              Walk& walk, BlockStarts& starts, EdgeWriter& writer) {
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

void BinnedEdges::add_start(ColumnKind kind, int64_t block, BlockStarts& starts, const EdgeWriter& writer) const {
  const auto cursors =
      writer.next().subspan(static_cast<size_t>(bucket(kind, 0)), static_cast<size_t>(bins_.num_buckets()));
  starts.push_back({block, {cursors.begin(), cursors.end()}});
}

}  // namespace tiering
