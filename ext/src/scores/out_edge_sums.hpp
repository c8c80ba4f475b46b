// Sums over out-edges from the CSC alone, by propagation blocking: the kernel of the scores that flow against
// the edges.
//
// Returns:    for every node u, the sum over relations r from u's type, over edges u -> v of r, of x_r(v).
// Approach:   a column of the CSC *scatters*. Once, the edges of each relation are put in bins by source
//             whose accumulators fit the private cache (binned_edges.hpp). A sweep then streams each bin:
//             sums[u] += x_r[v], v ascending. Dense columns, those with an edge to every eighth bin or more,
//             are read where they stand: all bins together use each cache line of x_r about once or more
//             often. Of the rest every edge would fetch a line of its own. Their x_r is first expanded, one
//             value per edge in the order of the bins, while a block of x_r stays in the private cache; then
//             both passes stream. Columns without edges take no part.
// Why:        building a CSR costs as much as five sweeps; pushing with atomics costs more and is not
//             reproducible.
// Memory:     4 bytes per edge, 16 per non-empty column, and the expanded values of a group of bins: at most
//             2 per edge.
// Parallelism and determinism: a bin is summed in float64: relations in list order, dense columns
//             before the rest, each ascending. Bins of many edges are cut into pieces that are summed apart and
//             added in order; the cut depends on the graph alone. Same bytes for any number of threads.
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
#include <vector>

#include "binned_edges.hpp"

namespace tiering {

/// The sums of consecutive nodes: first, first + 1, ... of a node type.
struct SumRange {
  int type;
  int64_t first;
  std::span<const double> sums;
};

/// The edges of all relations, ordered once for many sweeps.
class OutEdgeSums {
 public:
  using Use = std::function<void(int64_t, const SumRange&)>;

  /// Checks the relations (types, shapes, indptr, indices), then bins their edges.
  OutEdgeSums(const std::vector<ScoreRelation>& relations, std::vector<int64_t> num_nodes, int threads);

  /// Sets x of a relation to f(v), called once for every column v that has edges, from all threads.
  template <typename F>
  void hand_out(size_t relation, F&& f);

  /// Says whether a relation takes part in the sweeps from now on; at first all do.
  void set_active(size_t relation, bool active) { relations_[relation].active = active; }

  /// Number of ranges a sweep reports.
  int64_t num_ranges() const { return static_cast<int64_t>(bins_.size()); }

  /// Edges of the largest unit of work of a sweep.
  int64_t largest_task() const;

  /// One sweep: calls use(i, range) once for every range i, in any order and from all threads. Every node is
  /// in one range; the ranges depend on the graph alone.
  void sweep(const Use& use);

 private:
  struct Relation {
    int src_type;
    bool active;
    BinnedEdges edges;
    std::array<Buffer<double>, 2> values;  ///< per kind of columns, by rank: what they hand out
  };

  struct Bin {
    int type;
    int64_t index;
    int64_t sparse_edges;
    int64_t pieces;
    int64_t first_place;  ///< of its pieces' sums among those kept; -1 for a single piece
  };

  /// Edges [from, to) of a bin, all relations and both kinds in a row.
  struct Task {
    int64_t bin, piece, from, to;
  };

  /// Bins whose sparse edges are expanded together.
  struct Group {
    int64_t first_bin, end_bin;
    size_t first_task, end_task;
    std::vector<int64_t> first_bins, end_bins;  ///< per relation, of its source type
    std::vector<int64_t> offsets;               ///< per relation: position of a value less that of its edge
  };

  BucketGrid grid(const Bin& bin) const { return source_bins(num_nodes_[static_cast<size_t>(bin.type)]); }
  void plan_tasks();
  void plan_groups();
  void expand(const Group& group);
  void run_task(const Group& group, const Task& task, double* own, const Use& use);
  void gather(const Group& group, const Task& task, double* sums) const;
  void finish_bin(int64_t bin, double* sums, const Use& use) const;

  std::vector<int64_t> num_nodes_;
  int threads_;
  std::vector<Relation> relations_;
  std::vector<Bin> bins_;
  std::vector<Task> tasks_;
  std::vector<Group> groups_;
  std::vector<std::atomic<int64_t>> unfinished_;  ///< per bin: pieces still to be summed
  Buffer<double> own_;                            ///< per thread: sums of the bin at hand
  Buffer<double> expanded_;                       ///< values of the sparse edges of a group
  Buffer<double> pieces_;                         ///< sums of the pieces of a group
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
