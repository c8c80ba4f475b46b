#include "binned_edges.hpp"

#include <tiering/parallel.hpp>
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

/// Calls f(kind, rank, first, last) for the entries [begin, end), column by column.
template <typename F>
void BinnedEdges::scan(std::span<const int64_t> indptr, int64_t begin, int64_t end, F&& f) const {
  const int64_t* const offsets = indptr.data();
  std::array<int64_t, 2> rank{}, last_rank{};
  for (size_t k = 0; k < 2; ++k) {
    const auto columns = columns_[k].span();
    auto first_rank = [&](int64_t entry) {
      return std::partition_point(columns.begin(), columns.end(),
                                  [&](int64_t v) { return offsets[v + 1] <= entry; }) -
             columns.begin();
    };
    rank[k] = first_rank(begin);
    last_rank[k] = std::min<int64_t>(first_rank(end) + 1, columns.size());
  }
  constexpr int64_t kNone = INT64_MAX;
  auto next = [&](size_t k) { return rank[k] < last_rank[k] ? columns_[k][rank[k]] : kNone; };
  for (int64_t at = begin; at < end;) {
    const int64_t dense = next(0), sparse = next(1), column = std::min(dense, sparse);
    const size_t kind = sparse < dense;
    const int64_t last = std::min(end, offsets[column + 1]);
    f(kColumnKinds[kind], rank[kind]++, at, last);
    at = last;
  }
}

template <typename Writer>
void BinnedEdges::add_mark(ColumnKind kind, int64_t block, Marks& marks, const Writer& writer) const {
  const auto cursors = writer.cursors().subspan(static_cast<size_t>(bucket(kind, 0)),
                                                static_cast<size_t>(bins_.num_buckets()));
  marks.push_back({block, {cursors.begin(), cursors.end()}});
}

template <typename Index>
Partition<BinnedEdges::Edge> BinnedEdges::bin_edges(const CscView& csc, std::span<const Index> indices,
                                                    int threads) {
  const int shift = bins_.shift;
  const int64_t num_src = bins_.num_keys, sparse_keys = bins_.num_buckets() << shift;
  const Edge source_mask = (Edge{1} << shift) - 1;
  auto keys = [&](int64_t begin, int64_t end, auto&& f) {
    scan(csc.indptr, begin, end, [&](ColumnKind kind, int64_t, int64_t first, int64_t last) {
      const int64_t shifted = kind == ColumnKind::kSparse ? sparse_keys : 0;
      scan_indices(indices, num_src, first, last, [&](int64_t source) { f(shifted + source); });
    });
  };
  auto edges = [&](int chunk, int64_t begin, int64_t end, auto& writer) {
    auto& marks = marks_[static_cast<size_t>(chunk)];
    scan(csc.indptr, begin, end, [&](ColumnKind kind, int64_t rank, int64_t first, int64_t last) {
      Marks& own = marks[place(kind)];
      if (own.empty() || own.back().block != rank >> kHalfBits)
        add_mark(kind, rank >> kHalfBits, own, writer);
      const int64_t shifted = kind == ColumnKind::kSparse ? sparse_keys : 0;
      const Edge contributor = static_cast<Edge>(rank) << kHalfBits;
      const Index* const ids = indices.data();
      for (int64_t k = first; k < last; ++k)
        writer.put(shifted + ids[k], (static_cast<Edge>(ids[k]) & source_mask) | contributor);
    });
    for (const ColumnKind kind : kColumnKinds) add_mark(kind, -1, marks[place(kind)], writer);
  };
  return partition_by_key<Edge>(csc.num_edges(), {2 * sparse_keys, shift}, threads, keys, edges);
}

}  // namespace tiering
