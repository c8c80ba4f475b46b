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

BinnedEdges::BinnedEdges(const CscView& csc, int64_t num_src, int threads)
    : bins_(source_bins(num_src)),
      marks_(static_cast<size_t>(threads)),
      partition_(csc.indices.visit([&](const auto& indices) {
        select_columns(csc.indptr, threads);
        return bin_edges(csc, indices, threads);
      })) {}

int64_t BinnedEdges::size(ColumnKind kind, int64_t bin) const {
  int64_t size = 0;
  for (int chunk = 0; chunk < partition_.chunks(); ++chunk)
    size += partition_.count(bucket(kind, bin), chunk);
  return size;
}

/// Lists the columns of each kind: dense ones have an edge to every eighth bin or more.
void BinnedEdges::select_columns(std::span<const int64_t> indptr, int threads) {
  const auto num_columns = static_cast<int64_t>(indptr.size()) - 1;
  const int64_t dense = std::max<int64_t>(1, bins_.num_buckets() / 8);
  auto degree = [&](int64_t v) {
    return indptr[static_cast<size_t>(v) + 1] - indptr[static_cast<size_t>(v)];
  };
  std::vector<std::array<int64_t, 2>> begins(static_cast<size_t>((num_columns + kStrip - 1) / kStrip) + 1);
  for_strips(num_columns, threads, [&](size_t strip, int64_t first, int64_t end) {
    int64_t num_dense = 0, num_filled = 0;
    for (int64_t v = first; v < end; ++v) {
      num_dense += degree(v) >= dense;
      num_filled += degree(v) > 0;
    }
    begins[strip + 1] = {num_dense, num_filled - num_dense};
  });
  for (size_t s = 1; s < begins.size(); ++s)
    for (size_t k = 0; k < 2; ++k) begins[s][k] += begins[s - 1][k];
  for (size_t k = 0; k < 2; ++k) columns_[k] = Buffer<int64_t>(begins.back()[k]);
  for_strips(num_columns, threads, [&](size_t strip, int64_t first, int64_t end) {
    auto [at_dense, at_sparse] = begins[strip];
    for (int64_t v = first; v < end; ++v) {
      if (degree(v) >= dense) {
        columns_[0][at_dense++] = v;
      } else if (at_sparse < begins[strip + 1][1]) {  // written in vain if empty: the next one overwrites it
        columns_[1][at_sparse] = v;
        at_sparse += degree(v) > 0;
      }
    }
  });
}

/// First rank whose column ends after `entry`.
int64_t BinnedEdges::rank_at(ColumnKind kind, std::span<const int64_t> indptr, int64_t entry) const {
  const auto ids = columns(kind);
  return std::partition_point(ids.begin(), ids.end(),
                              [&](int64_t v) { return indptr[static_cast<size_t>(v) + 1] <= entry; }) -
         ids.begin();
}

/// Calls f(kind, first, last) for the entries [begin, end), cut where the kind changes or a dense column ends.
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

/// Calls f(rank, first, last) for the columns of a kind within the entries [begin, end), all of that kind.
template <typename F>
void BinnedEdges::scan_columns(ColumnKind kind, std::span<const int64_t> indptr, int64_t& rank, int64_t begin,
                               int64_t end, F&& f) const {
  const int64_t* const columns = columns_[place(kind)].data();
  const int64_t* const ends = indptr.data() + 1;
  for (int64_t at = begin; at < end; ++rank) {
    const int64_t last = std::min(end, ends[columns[rank]]);
    f(rank, at, last);
    at = last;
  }
}

template <typename Writer>
void BinnedEdges::add_mark(ColumnKind kind, int64_t block, Marks& marks, const Writer& writer) const {
  const auto cursors = writer.cursors().subspan(static_cast<size_t>(bucket(kind, 0)),
                                                static_cast<size_t>(bins_.num_buckets()));
  marks.push_back({block, {cursors.begin(), cursors.end()}});
}

/// Sends the entries [begin, end) to their bins.
template <typename Index, typename Writer>
void BinnedEdges::write_edges(std::span<const int64_t> indptr, std::span<const Index> indices, int64_t begin,
                              int64_t end, std::array<Marks, 2>& marks, Writer& writer) {
  std::array<int64_t, 2> ranks;
  for (const ColumnKind kind : kColumnKinds) ranks[place(kind)] = rank_at(kind, indptr, begin);
  const Edge source_mask = (Edge{1} << bins_.shift) - 1;
  scan_kinds(indptr, begin, end, [&](ColumnKind kind, int64_t first, int64_t last) {
    Marks& own = marks[place(kind)];
    const int64_t shifted = bucket(kind, 0) << bins_.shift;
    scan_columns(kind, indptr, ranks[place(kind)], first, last,
                 [&, ids = indices.data(), shifted, source_mask](int64_t rank, int64_t from, int64_t to) {
                   if (own.empty() || own.back().block != rank >> kHalfBits)
                     add_mark(kind, rank >> kHalfBits, own, writer);
                   const Edge contributor = static_cast<Edge>(rank) << kHalfBits;
                   for (int64_t k = from; k < to; ++k) {
                     prefetch_stream(ids + k);
                     writer.put(shifted + ids[k], (static_cast<Edge>(ids[k]) & source_mask) | contributor);
                   }
                 });
    // A column cut by `last` goes on in the next chunk; one that ends there is done with.
  });
  for (const ColumnKind kind : kColumnKinds) add_mark(kind, -1, marks[place(kind)], writer);
}

template <typename Index>
Partition<BinnedEdges::Edge> BinnedEdges::bin_edges(const CscView& csc, std::span<const Index> indices,
                                                    int threads) {
  const int shift = bins_.shift;
  const int64_t num_src = bins_.num_keys, sparse_keys = bins_.num_buckets() << shift;
  auto keys = [&](int64_t begin, int64_t end, auto&& f) {
    scan_kinds(csc.indptr, begin, end, [&](ColumnKind kind, int64_t first, int64_t last) {
      scan_indices(indices, num_src, first, last,
                   [f, shifted = kind == ColumnKind::kSparse ? sparse_keys : 0](int64_t source) {
                     f(shifted + source);
                   });
    });
  };
  auto edges = [&](int chunk, int64_t begin, int64_t end, auto& writer) {
    write_edges(csc.indptr, indices, begin, end, marks_[static_cast<size_t>(chunk)], writer);
  };
  return partition_by_key<Edge>(csc.num_edges(), {2 * sparse_keys, shift}, threads, keys, edges);
}

}  // namespace tiering
