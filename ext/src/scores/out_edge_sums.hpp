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
// Memory:     4 bytes per edge; 10 per non-empty column of few edges, 16 per other; 2 bits per column; 8 per 2^32
//             sources times columns; at most 2 per edge for expanded values (a quarter of the edges at a time);
//             512 KiB per thread and piece of a large bin. With less memory edges are expanded in more, smaller
//             groups, and edges that do not fit lie in a scratch file (sum_plan.hpp).
// Parallelism and determinism: a bin is summed in float64: relations in list order, dense columns
//             before the others, each ascending. A bin of many edges is cut into pieces that are summed apart
//             and added in order; the cut depends on the graph alone. Same bytes for any number of threads and
//             any memory.
// Source:     Beamer, Asanovic, Patterson, "Reducing PageRank communication via propagation blocking"
//             (IPDPS'17).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <tiering/io/double_buffer.hpp>
#include <tiering/parallel.hpp>
#include <tiering/scores.hpp>
#include <vector>

#include "binned_edges.hpp"
#include "sum_plan.hpp"

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

  /// Checks the relations (types, shapes, indptr, indices), then bins their edges. `own_bytes` of the memory are
  /// the caller's: it takes them later, so that they are free while the edges are binned.
  OutEdgeSums(const std::vector<ScoreRelation>& relations, const std::vector<int64_t>& num_nodes, int threads,
              const ScoreMemory& memory = {}, int64_t own_bytes = 0, const SumLimits& limits = {});

  /// Sets x of a relation to f(v, degree), called once for every column v that has edges, from all threads.
  template <typename F>
  void hand_out(size_t relation, F&& f);

  /// Says whether a relation takes part in the sweeps from now on; at first all do.
  void set_active(size_t relation, bool active) { relations_[relation]->active = active; }

  /// Number of ranges a sweep reports.
  int64_t num_ranges() const { return static_cast<int64_t>(plan_->bins().size()); }

  const SumPlan& plan() const { return *plan_; }

  /// One sweep: calls use(i, range) once for every range i, in any order and from all threads. Every node is
  /// in one range; the ranges depend on the graph alone.
  void sweep(const Use& use);

 private:
  struct Relation {
    int src_type;
    bool active;
    DirectFile
        file;  ///< of the indices, to be read past the page cache; empty: they are read as they are mapped
    BinnedEdges edges;
    std::array<Buffer<double>, 2> values;  ///< per kind of columns, by rank: x
  };

  int chunks(const std::vector<ScoreRelation>& relations, int64_t bytes) const;
  int64_t fixed_bytes() const;
  void place(const std::vector<ScoreRelation>& relations, int64_t bytes, int64_t own_bytes);
  std::unique_ptr<WriteBehind> stage(int64_t bytes) const;
  void take_memory();
  void request(size_t g);
  void expand(const SumGroup& group, const char* from_disk);
  void sum_group(size_t g, const char* from_disk, const Use& use);
  void sum_piece(size_t g, const SumPiece& piece, const char* from_disk, double* own, const Use& use);
  void gather(const SumGroup& group, const SumPiece& piece, const char* from_disk, double* sums) const;
  void add_dense(const Relation& relation, const GroupRange& range, int64_t bin,
                 std::pair<int64_t, int64_t> part, const char* from_disk, double* sums) const;
  void add_sparse(const Relation& relation, const GroupRange& range, int64_t bin,
                  std::pair<int64_t, int64_t> part, const char* from_disk, double* sums) const;
  void finish_pieces(size_t g, int64_t bin, const Use& use);
  void hand_over(int64_t bin, double* sums, const Use& use) const;

  int threads_;
  ScoreMemory memory_;
  std::vector<BucketGrid> grids_;                     ///< per type
  std::vector<std::unique_ptr<Relation>> relations_;  ///< the plan points to their edges
  std::unique_ptr<SumPlan> plan_;
  std::vector<int64_t> first_pieces_;             ///< per bin, then the end
  std::vector<std::atomic<int64_t>> unfinished_;  ///< per bin: pieces of the group still to be summed
  Buffer<double> own_sums_;                       ///< per thread: the bin at hand
  Buffer<double> piece_sums_;                     ///< two that go on in the next group, then those of a group
  Buffer<double> expanded_;                       ///< values of a group's sparse edges
  std::unique_ptr<ScratchFile> scratch_;
  std::unique_ptr<DoubleBuffer> from_scratch_;  ///< the group that is summed next is under way
};

template <typename F>
void OutEdgeSums::hand_out(size_t relation, F&& f) {
  for (const ColumnKind kind : kColumnKinds) {
    double* const values = relations_[relation]->values[static_cast<size_t>(kind)].data();
    relations_[relation]->edges.columns().for_each(
        kind, threads_, [&](int64_t v, int64_t rank, int64_t degree) { values[rank] = f(v, degree); });
  }
}

}  // namespace tiering
