#include "binned_edges.hpp"

#include <tiering/parallel.hpp>
#include <tiering/prefetch.hpp>
#include <tiering/scan_columns.hpp>
#include <utility>

namespace tiering {
namespace {

constexpr int64_t kWantedBins = 64;
constexpr int64_t kStrip = 4096;  ///< columns counted together

/// Calls f(strip, first, end) for every strip of columns, from all threads.
template <typename F>
void for_strips(int64_t num_columns, int threads, F&& f) {
  run_team(threads, [&](int t) {
    const auto [begin, end] = even_cut((num_columns + kStrip - 1) / kStrip, threads, t);
    for (int64_t s = begin; s < end; ++s)
      f(static_cast<size_t>(s), s * kStrip, std::min(num_columns, (s + 1) * kStrip));
  });
}

}  // namespace

BucketGrid source_bins(int64_t num_nodes) {
  return choose_grid(num_nodes, kWantedBins, BinnedEdges::kHalfBits, num_nodes);
}

BinnedEdges::BinnedEdges(const CscView& csc, int64_t num_src, int64_t dense_degree, int threads)
    : bins_(source_bins(num_src)),
      marks_(static_cast<size_t>(threads)),
      partition_(csc.indices.visit([&](const auto& indices) {
        select_columns(csc.indptr, dense_degree, threads);
        return bin_edges(csc, indices, threads);
      })) {}

int64_t BinnedEdges::size(ColumnKind kind, int64_t bin) const {
  int64_t size = 0;
  for (int chunk = 0; chunk < partition_.chunks(); ++chunk)
    size += partition_.count(bucket(kind, bin), chunk);
  return size;
}

/// Lists the columns of each kind.
void BinnedEdges::select_columns(std::span<const int64_t> indptr, int64_t dense_degree, int threads) {
  const auto num_columns = static_cast<int64_t>(indptr.size()) - 1;
  const int64_t* const offsets = indptr.data();
  auto scan = [&](int64_t first, int64_t end, auto&& f) {
    auto ahead = [&](int64_t v) { prefetch_stream(offsets + v); };
    for_stream(first, end, ahead, [&](int64_t v) { f(v, offsets[v + 1] - offsets[v]); });
  };
  std::vector<std::array<int64_t, 2>> begins(static_cast<size_t>((num_columns + kStrip - 1) / kStrip) + 1);
  for_strips(num_columns, threads, [&](size_t strip, int64_t first, int64_t end) {
    int64_t dense = 0, filled = 0;
    scan(first, end, [&](int64_t, int64_t degree) {
      dense += degree >= dense_degree;
      filled += degree > 0;
    });
    begins[strip + 1] = {dense, filled - dense};
  });
  for (size_t s = 1; s < begins.size(); ++s)
    for (size_t k = 0; k < 2; ++k) begins[s][k] += begins[s - 1][k];
  for (size_t k = 0; k < 2; ++k) columns_[k] = Buffer<int64_t>(begins.back()[k]);
  for_strips(num_columns, threads, [&](size_t strip, int64_t first, int64_t end) {
    auto [dense, sparse] = begins[strip];
    scan(first, end, [&, last = begins[strip + 1][1]](int64_t v, int64_t degree) {
      if (degree >= dense_degree) {
        columns_[0][dense++] = v;
      } else if (sparse < last) {  // an empty column is overwritten by the next: no branch on the degree
        columns_[1][sparse] = v;
        sparse += degree > 0;
      }
    });
  });
}

/// First rank of a kind whose column ends behind `entry`.
int64_t BinnedEdges::rank_at(ColumnKind kind, std::span<const int64_t> indptr, int64_t entry) const {
  const auto ids = columns(kind);
  auto ended = [&](int64_t v) { return indptr[static_cast<size_t>(v) + 1] <= entry; };
  return std::partition_point(ids.begin(), ids.end(), ended) - ids.begin();
}

/// Calls f(kind, first, last) for the entries [begin, end) in order, cut where the kind of column changes and
/// where a dense column ends.
template <typename F>
void BinnedEdges::scan_kinds(std::span<const int64_t> indptr, int64_t begin, int64_t end, F&& f) const {
  const auto dense = columns(ColumnKind::kDense);
  int64_t at = begin;
  for (int64_t rank = rank_at(ColumnKind::kDense, indptr, begin); at < end; ++rank) {
    const bool none = rank == static_cast<int64_t>(dense.size());
    const auto column = static_cast<size_t>(none ? 0 : dense[static_cast<size_t>(rank)]);
    const int64_t first = none ? end : std::clamp(indptr[column], at, end);
    if (at < first) f(ColumnKind::kSparse, at, first);
    if (none) break;
    at = std::min(indptr[column + 1], end);
    if (first < at) f(ColumnKind::kDense, first, at);
  }
}

template <typename Index>
Partition<BinnedEdges::Edge> BinnedEdges::bin_edges(const CscView& csc, std::span<const Index> indices,
                                                    int threads) {
  const int64_t num_src = bins_.num_keys, all_keys = bins_.num_buckets() << bins_.shift;
  auto keys = [&](int64_t begin, int64_t end, auto&& f) {
    scan_kinds(csc.indptr, begin, end, [&](ColumnKind kind, int64_t first, int64_t last) {
      const int64_t shifted = static_cast<int64_t>(kind) * all_keys;
      scan_indices(indices, num_src, first, last, [f, shifted](int64_t source) { f(shifted + source); });
    });
  };
  auto edges = [&](int chunk, int64_t begin, int64_t end, auto& writer) {
    write_edges(csc.indptr, indices.data(), begin, end, marks_[static_cast<size_t>(chunk)], writer);
  };
  return partition_by_key<Edge>(csc.num_edges(), {2 * all_keys, bins_.shift}, threads, keys, edges);
}

/// Sends the entries [begin, end) to their bins.
template <typename Index, typename Writer>
void BinnedEdges::write_edges(std::span<const int64_t> indptr, const Index* indices, int64_t begin,
                              int64_t end, std::array<Marks, 2>& marks, Writer& writer) const {
  std::array<int64_t, 2> ranks{};
  for (const ColumnKind kind : kColumnKinds) ranks[place(kind)] = rank_at(kind, indptr, begin);
  const int64_t* const ends = indptr.data() + 1;
  const Edge source_mask = (Edge{1} << bins_.shift) - 1;
  scan_kinds(indptr, begin, end, [&](ColumnKind kind, int64_t first, int64_t last) {
    const int64_t shifted = bucket(kind, 0) << bins_.shift, *const columns = columns_[place(kind)].data();
    Marks& own = marks[place(kind)];
    for (int64_t rank = ranks[place(kind)]; first < last; ranks[place(kind)] = ++rank) {
      prefetch_stream(columns + rank);
      prefetch_stream(ends + columns[rank]);
      if (own.empty() || own.back().block != rank >> kHalfBits)
        add_mark(kind, rank >> kHalfBits, own, writer);
      const int64_t stop = std::min(last, ends[columns[rank]]);
      auto ahead = [&](int64_t k) { prefetch_stream(indices + k); };
      for_stream(first, stop, ahead, [&, contributor = static_cast<Edge>(rank) << kHalfBits](int64_t k) {
        writer.put(shifted + indices[k], (static_cast<Edge>(indices[k]) & source_mask) | contributor);
      });
      first = stop;
    }
  });
  for (const ColumnKind kind : kColumnKinds) add_mark(kind, -1, marks[place(kind)], writer);
}

template <typename Writer>
void BinnedEdges::add_mark(ColumnKind kind, int64_t block, Marks& marks, const Writer& writer) const {
  const auto cursors = writer.cursors().subspan(static_cast<size_t>(bucket(kind, 0)),
                                                static_cast<size_t>(bins_.num_buckets()));
  marks.push_back({block, {cursors.begin(), cursors.end()}});
}

}  // namespace tiering
