#include "binned_edges.hpp"

#include <tiering/scan_columns.hpp>

namespace tiering {
namespace {

constexpr int64_t kWantedBins = 64;

}  // namespace

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
