// Sums over out-edges from the CSC alone, by propagation blocking: the kernel of the scores that flow against
// the edges.
//
// Returns:    for every node u, the sum over relations r from u's type, over edges u -> v of r, of x_r(v).
// Approach:   a column of the CSC *scatters*. Once, the edges of each relation are put in bins by source whose
//             accumulators fit the private cache (binned_edges.hpp). A sweep then streams each bin:
//             sums[u] += x_r[v], v ascending. Dense columns, those with an edge for every eighth bin or more,
//             are read where they stand: a bin uses about each of their cache lines. Of the other columns
//             nearly every edge would fetch a line of its own. So their x_r is first expanded, one value per
//             edge in the order of the bins, while a block of x_r stays in the private cache; then both
//             passes stream. Columns without edges take no part.
// Why:        building a CSR costs as much as five sweeps; pushing with atomics costs more and is not
//             reproducible.
// Memory:     4 bytes per edge, 16 per non-empty column, at most 2 per edge for expanded values (a quarter of
//             the bins at a time), 512 KiB per thread and piece of a large bin.
// Parallelism and determinism: a bin is summed in float64: relations in list order, dense columns
//             before the others, each ascending. A bin of many edges is cut into pieces that are summed apart
//             and added in order; the cut depends on the graph alone. Same bytes for any number of threads.
// Source:     Beamer, Asanovic, Patterson, "Reducing PageRank communication via propagation blocking"
//             (IPDPS'17).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <tiering/parallel.hpp>
#include <tiering/scores.hpp>
#include <utility>
#include <vector>

#include "binned_edges.hpp"

namespace tiering {

/// The sums of consecutive nodes: first, first + 1, ... of a node type.
struct SumRange {
  int type;
  int64_t first;
  std::span<const double> sums;
};

/// Where the work is cut. The sums depend on it in their last bits.
struct SumLimits {
  int64_t least_piece = int64_t{1} << 20;  ///< edges: a bin of more may be cut
  int64_t most_pieces = 256;               ///< a piece has at least all edges / most_pieces
  int64_t least_group = int64_t{1} << 20;  ///< edges that are at least expanded together
  int64_t cached_columns = int64_t{1}
                           << 17;  ///< of a relation: all are dense, their values stay in the cache
};

/// The edges of all relations, ordered once for many sweeps.
class OutEdgeSums {
 public:
  using Use = std::function<void(int64_t, const SumRange&)>;

  /// Checks the relations (types, shapes, indptr, indices), then bins their edges.
  OutEdgeSums(const std::vector<ScoreRelation>& relations, const std::vector<int64_t>& num_nodes, int threads,
              const SumLimits& limits = {});

  /// Sets x of a relation to f(v), called once for every column v that has edges, from all threads.
  template <typename F>
  void hand_out(size_t relation, F&& f);

  /// Says whether a relation takes part in the sweeps from now on; at first all do.
  void set_active(size_t relation, bool active) { relations_[relation].active = active; }

  /// Number of ranges a sweep reports.
  int64_t num_ranges() const { return static_cast<int64_t>(bins_.size()); }

  /// Edges of the largest piece.
  int64_t largest_piece() const;

  /// One sweep: calls use(i, range) once for every range i, in any order and from all threads. Every node is
  /// in one range; the ranges depend on the graph alone.
  void sweep(const Use& use);

 private:
  struct Relation {
    int src_type;
    bool active;
    BinnedEdges edges;
    std::array<Buffer<double>, 2> values;  ///< per kind of columns, by rank: x
  };

  struct Bin {
    int type;
    int64_t index;  ///< among the bins of the type
    int64_t edges, sparse_edges;
    int64_t pieces;
    int64_t first_place;  ///< of the sums of its pieces in piece_sums_; unused for a single piece
  };

  /// Edges [from, to) of a bin: all relations and both kinds in a row.
  struct Piece {
    int64_t bin, index, from, to;
  };

  /// Bins whose sparse edges are expanded together.
  struct Group {
    int64_t first_bin, end_bin;
    int64_t first_piece, end_piece;
    std::vector<int64_t> offsets;  ///< per relation: place of an edge's value less the edge's position
  };

  void add_bins();
  void cut_bins(const SumLimits& limits);
  void group_bins(const SumLimits& limits);
  std::pair<int64_t, int64_t> own_bins(const Group& group, const Relation& relation) const;
  void expand(const Group& group);
  void sum_piece(const Group& group, const Piece& piece, double* own, const Use& use);
  void gather(const Group& group, const Piece& piece, double* sums) const;
  void finish_bin(int64_t bin, double* sums, const Use& use) const;

  int threads_;
  std::vector<BucketGrid> grids_;    ///< per type
  std::vector<int64_t> first_bins_;  ///< per type: its first bin in bins_; then the end
  std::vector<Relation> relations_;
  std::vector<Bin> bins_;
  std::vector<Piece> pieces_;
  std::vector<Group> groups_;
  std::vector<std::atomic<int64_t>> unfinished_;  ///< per bin: pieces still to be summed
  Buffer<double> own_sums_;                       ///< per thread: the bin at hand
  Buffer<double> piece_sums_;                     ///< the pieces of a group's bins
  Buffer<double> expanded_;                       ///< values of a group's sparse edges
};

template <typename F>
void OutEdgeSums::hand_out(size_t relation, F&& f) {
  for (const ColumnKind kind : kColumnKinds)
    run_team(threads_, [&](int t) {
      const auto columns = relations_[relation].edges.columns(kind);
      double* const values = relations_[relation].values[static_cast<size_t>(kind)].data();
      const auto [begin, end] = even_cut(static_cast<int64_t>(columns.size()), threads_, t);
      for (int64_t rank = begin; rank < end; ++rank) values[rank] = f(columns[static_cast<size_t>(rank)]);
    });
}

}  // namespace tiering
