#include "out_edge_sums.hpp"

#include <string>
#include <tiering/errors.hpp>
#include <tiering/graph.hpp>
#include <tiering/prefetch.hpp>

namespace tiering {
namespace {

constexpr int64_t kBinSources = BinnedEdges::kBlockColumns;  ///< at most
constexpr int64_t kGroups = 4;
constexpr int64_t kValuesPerLine = kLineBytes / sizeof(double);

void check_relation(const ScoreRelation& relation, const std::vector<int64_t>& num_nodes, int threads) {
  const size_t types = num_nodes.size();
  TIERING_EXPECT(
      static_cast<size_t>(relation.src_type) < types && static_cast<size_t>(relation.dst_type) < types,
      "a relation names a node type outside 0.." + std::to_string(types) + "-1");
  const int64_t columns = relation.csc.num_columns(),
                expected = num_nodes[static_cast<size_t>(relation.dst_type)];
  TIERING_EXPECT(columns == expected, "a relation has " + std::to_string(columns) +
                                          " columns, its node type has " + std::to_string(expected) +
                                          " nodes");
  check_indptr(relation.csc, threads);
}

/// From this degree on a column is dense: then a bin uses about every line of such columns' values.
int64_t dense_degree(const ScoreRelation& relation, const BucketGrid& grid, const SumLimits& limits) {
  if (relation.csc.num_columns() <= limits.cached_columns) return 1;
  return std::max<int64_t>(1, grid.num_buckets() / kValuesPerLine);
}

}  // namespace

OutEdgeSums::OutEdgeSums(const std::vector<ScoreRelation>& relations, const std::vector<int64_t>& num_nodes,
                         int threads, const SumLimits& limits)
    : threads_(threads) {
  for (const auto& r : relations) check_relation(r, num_nodes, threads);
  for (const int64_t n : num_nodes) grids_.push_back(source_bins(n));
  for (const auto& r : relations) {
    const BucketGrid& grid = grids_[static_cast<size_t>(r.src_type)];
    BinnedEdges edges(r.csc, grid.num_keys, dense_degree(r, grid, limits), threads);
    std::array<Buffer<double>, 2> values;
    for (const ColumnKind kind : kColumnKinds)
      values[static_cast<size_t>(kind)] = Buffer<double>(static_cast<int64_t>(edges.columns(kind).size()));
    relations_.push_back({r.src_type, true, std::move(edges), std::move(values)});
  }
  add_bins();
  cut_bins(limits);
  group_bins(limits);
  // At least so much that the system gives huge pages.
  own_sums_ = Buffer<double>(std::max<int64_t>(threads * kBinSources, 2 * kHugePageBytes / sizeof(double)));
}

void OutEdgeSums::add_bins() {
  for (size_t t = 0; t < grids_.size(); ++t) {
    first_bins_.push_back(num_ranges());
    for (int64_t b = 0; b < grids_[t].num_buckets(); ++b) {
      Bin bin{static_cast<int>(t), b, 0, 0, 1, 0};
      for (const auto& r : relations_)
        if (r.src_type == bin.type) {
          const int64_t sparse = r.edges.size(ColumnKind::kSparse, b);
          bin.edges += r.edges.size(ColumnKind::kDense, b) + sparse;
          bin.sparse_edges += sparse;
        }
      bins_.push_back(bin);
    }
  }
  first_bins_.push_back(num_ranges());
  unfinished_ = std::vector<std::atomic<int64_t>>(bins_.size());
}

/// Cuts the bins of many edges into pieces: no unit of work is larger than that.
void OutEdgeSums::cut_bins(const SumLimits& limits) {
  int64_t all_edges = 0;
  for (const Bin& bin : bins_) all_edges += bin.edges;
  const int64_t most = std::max(limits.least_piece, all_edges / limits.most_pieces);
  for (size_t b = 0; b < bins_.size(); ++b) {
    bins_[b].pieces = std::max<int64_t>(1, (bins_[b].edges + most - 1) / most);
    for (int64_t p = 0; p < bins_[b].pieces; ++p) {
      const auto [from, to] =
          even_cut(bins_[b].edges, static_cast<int>(bins_[b].pieces), static_cast<int>(p));
      pieces_.push_back({static_cast<int64_t>(b), p, from, to});
    }
  }
}

void OutEdgeSums::group_bins(const SumLimits& limits) {
  int64_t all_sparse = 0, most_values = 0, most_places = 0;
  for (const Bin& bin : bins_) all_sparse += bin.sparse_edges;
  const int64_t wanted = std::max(limits.least_group, all_sparse / kGroups + 1);
  for (int64_t b = 0, piece = 0; b < num_ranges();) {
    Group group{b, b, piece, piece, {}};
    int64_t sparse = 0, places = 0;
    for (; b < num_ranges(); ++b) {
      Bin& bin = bins_[static_cast<size_t>(b)];
      if (sparse > 0 && sparse + bin.sparse_edges > wanted) break;
      sparse += bin.sparse_edges;
      piece += bin.pieces;
      bin.first_place = places;
      if (bin.pieces > 1) places += bin.pieces;
    }
    group.end_bin = b;
    group.end_piece = piece;
    int64_t values = 0;
    for (const auto& r : relations_) {
      const auto [first, end] = own_bins(group, r);
      const int64_t begin = r.edges.first_position(ColumnKind::kSparse, first);
      group.offsets.push_back(values - begin);
      values += r.edges.first_position(ColumnKind::kSparse, end) - begin;
    }
    most_values = std::max(most_values, values);
    most_places = std::max(most_places, places);
    groups_.push_back(std::move(group));
  }
  expanded_ = Buffer<double>(most_values);
  piece_sums_ = Buffer<double>(most_places * kBinSources);
}

/// The bins of a relation's sources that are in the group, counted within the type.
std::pair<int64_t, int64_t> OutEdgeSums::own_bins(const Group& group, const Relation& relation) const {
  const auto type = static_cast<size_t>(relation.src_type);
  const int64_t first = first_bins_[type], count = first_bins_[type + 1] - first;
  return {std::clamp<int64_t>(group.first_bin - first, 0, count),
          std::clamp<int64_t>(group.end_bin - first, 0, count)};
}

int64_t OutEdgeSums::largest_piece() const {
  int64_t largest = 0;
  for (const Piece& piece : pieces_) largest = std::max(largest, piece.to - piece.from);
  return largest;
}

/// Writes the value of every sparse edge of the group, in the order of the edges.
void OutEdgeSums::expand(const Group& group) {
  for (size_t r = 0; r < relations_.size(); ++r) {
    const Relation& relation = relations_[r];
    const auto [first_bin, end_bin] = own_bins(group, relation);
    if (!relation.active || first_bin == end_bin) continue;
    const BinnedEdges::Edge* const edges = relation.edges.edges();
    const Buffer<double>& values = relation.values[static_cast<size_t>(ColumnKind::kSparse)];
    double* const out = expanded_.data() + group.offsets[r];
    for_blocks(threads_, relation.edges.num_blocks(ColumnKind::kSparse), [&](int64_t block) {
      const int64_t first_rank = block * BinnedEdges::kBlockColumns,
                    end_rank = std::min(values.size(), first_rank + BinnedEdges::kBlockColumns);
      const double* const own = values.data() + first_rank;
      for (int64_t rank = first_rank; rank < end_rank; rank += kValuesPerLine)
        __builtin_prefetch(&values[rank], 0, 2);  // 2: L2
      auto ahead = [&](int64_t k) { prefetch_stream(edges + k); };
      relation.edges.visit_bins(
          ColumnKind::kSparse, block, first_bin, end_bin, [&](int64_t first, int64_t last) {
            for_stream(first, last, ahead, [&](int64_t k) { out[k] = own[BinnedEdges::rank(edges[k])]; });
          });
    });
  }
}

/// Adds the values of the piece's edges.
void OutEdgeSums::gather(const Group& group, const Piece& piece, double* sums) const {
  const Bin& bin = bins_[static_cast<size_t>(piece.bin)];
  int64_t passed = 0;
  auto part = [&](int64_t size) {  // which of the next `size` edges of the bin are the piece's
    const int64_t before = std::exchange(passed, passed + size);
    return std::pair(std::clamp<int64_t>(piece.from - before, 0, size),
                     std::clamp<int64_t>(piece.to - before, 0, size));
  };
  for (size_t r = 0; r < relations_.size(); ++r) {
    const Relation& relation = relations_[r];
    if (relation.src_type != bin.type) continue;
    const auto dense = part(relation.edges.size(ColumnKind::kDense, bin.index));
    const auto sparse = part(relation.edges.size(ColumnKind::kSparse, bin.index));
    if (!relation.active) continue;
    const BinnedEdges::Edge* const edges = relation.edges.edges();
    relation.edges.visit_blocks(
        ColumnKind::kDense, bin.index, dense.first, dense.second,
        [&](int64_t first_rank, int64_t first, int64_t last) {
          const double* const values =
              relation.values[static_cast<size_t>(ColumnKind::kDense)].data() + first_rank;
          auto ahead = [&](int64_t k) { prefetch_stream(edges + k); };
          for_stream(first, last, ahead, [&](int64_t k) {
            sums[BinnedEdges::source(edges[k])] += values[BinnedEdges::rank(edges[k])];
          });
        });
    const double* const values = expanded_.data() + group.offsets[r];
    relation.edges.visit_runs(
        ColumnKind::kSparse, bin.index, sparse.first, sparse.second, [&](int64_t first, int64_t last) {
          auto ahead = [&](int64_t k) {
            prefetch_stream(edges + k);
            prefetch_stream(values + k);
          };
          for_stream(first, last, ahead,
                     [&](int64_t k) { sums[BinnedEdges::source(edges[k])] += values[k]; });
        });
  }
}

/// Adds up the pieces of a bin, whose sums begin at `sums`, and hands them to the caller.
void OutEdgeSums::finish_bin(int64_t index, double* sums, const Use& use) const {
  const Bin& bin = bins_[static_cast<size_t>(index)];
  const BucketGrid& grid = grids_[static_cast<size_t>(bin.type)];
  const int64_t first = grid.first_key(bin.index), size = grid.end_key(bin.index) - first;
  for (int64_t p = 1; p < bin.pieces; ++p)
    for (int64_t i = 0; i < size; ++i) sums[i] += sums[p * kBinSources + i];
  use(index, {bin.type, first, {sums, static_cast<size_t>(size)}});
}

/// Sums a piece. Whoever ends the last piece of a bin finishes the bin.
void OutEdgeSums::sum_piece(const Group& group, const Piece& piece, double* own, const Use& use) {
  const Bin& bin = bins_[static_cast<size_t>(piece.bin)];
  const BucketGrid& grid = grids_[static_cast<size_t>(bin.type)];
  double* const first = bin.pieces == 1 ? own : piece_sums_.data() + bin.first_place * kBinSources;
  double* const sums = first + piece.index * kBinSources;
  std::fill_n(sums, grid.end_key(bin.index) - grid.first_key(bin.index), 0.0);
  gather(group, piece, sums);
  if (unfinished_[static_cast<size_t>(piece.bin)].fetch_sub(1, std::memory_order_acq_rel) == 1)
    finish_bin(piece.bin, first, use);
}

void OutEdgeSums::sweep(const Use& use) {
  for (size_t b = 0; b < bins_.size(); ++b) unfinished_[b] = bins_[b].pieces;
  for (const Group& group : groups_) {
    expand(group);
    std::atomic<int64_t> next{group.first_piece};
    run_team(threads_, [&](int t) {
      double* const own = own_sums_.data() + t * kBinSources;
      for (int64_t i = next++; i < group.end_piece; i = next++)
        sum_piece(group, pieces_[static_cast<size_t>(i)], own, use);
    });
  }
}

}  // namespace tiering
