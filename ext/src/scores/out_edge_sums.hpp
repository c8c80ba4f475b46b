// Sums over out-edges from the CSC alone, by propagation blocking (Beamer, Asanovic, Patterson, IPDPS'17): for every
// node u the sum over relations r, over edges u -> v of r, of x_r(v). The edges are put in bins by source once
// (binned_edges.hpp); a sweep streams each bin. Columns of high degree are read where they stand: a bin uses about each
// of their cache lines. The x_r of the others is first expanded, one value per edge, while a block of it stays in the
// private cache. Bins that do not fit the memory are spilled, whole, to a scratch file and read again in each sweep,
// while those before are summed. A bin is summed in float64: relations in list order, columns of high degree first,
// each ascending; one of many edges in pieces cut by the graph alone, added in order: same bytes for any number of
// threads and any memory. Memory: RelationShape::kept_bytes, 4 bytes per edge that is not spilled, 16 for each edge of
// a group, 512 KiB per thread.
#pragma once

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

  /// Sets x of a relation, its contributions, to f(v, degree), called once for every column v that has edges, from all
  /// threads.
  template <typename F>
  void contribute(size_t relation, F&& f);

  /// Says whether a relation takes part in the sweeps from now on; at first all do.
  void set_active(size_t relation, bool active) { relations_[relation]->active = active; }

  int64_t num_ranges() const { return static_cast<int64_t>(plan_->bins().size()); }

  const SumPlan& plan() const { return *plan_; }

  /// One sweep: calls use(i, range) once for every range i, in any order and from all threads. Every node is
  /// in one range; the ranges depend on the graph alone.
  void sweep(const Use& use);

 private:
  struct Relation {
    int src_type;
    bool active;
    DirectFile file;  ///< of the indices, to be read past the page cache; empty: they are read as they are mapped
    BinnedEdges edges;
    std::array<Buffer<double>, 2> values;  ///< per kind of columns, by rank: x
  };

  /// The memory that a group is summed from; positions of edges and values count from these addresses.
  struct Sources {
    const BinnedEdge *resident, *spilled;
    double* expanded;
  };

  int chunks(const std::vector<ScoreRelation>& relations, int64_t bytes) const;
  int64_t kept_bytes(const std::vector<ScoreRelation>& relations) const;
  void write_edges(const std::vector<ScoreRelation>& relations, int64_t bytes);
  std::unique_ptr<WriteBehind> stage(int64_t bytes) const;
  void take_memory();
  void request(size_t g);
  void sum_group(const SumGroup& group, const std::byte* from_scratch, const Use& use);
  void expand(const SumGroup& group, size_t r, const Sources& sources);
  void gather(const SumPiece& piece, const Sources& sources, double* sums) const;
  void sum_piece(const SumPiece& piece, const Sources& sources, double* own, const Use& use);
  void hand_over(int64_t bin, double* sums, const Use& use) const;

  int threads_, chunks_;
  ScoreMemory memory_;
  std::vector<BucketGrid> grids_;                     ///< per type
  std::vector<std::unique_ptr<Relation>> relations_;  ///< the plan points to their edges
  std::unique_ptr<SumPlan> plan_;
  Buffer<BinnedEdge> resident_;
  Buffer<double> own_sums_;        ///< per thread: the piece at hand
  Buffer<double> pieces_sum_;      ///< of the pieces so far of a bin that has several
  std::atomic<int64_t> turn_ = 0;  ///< the piece that may be added to it next
  Buffer<double> expanded_;        ///< values of a group's edges of low degree
  std::unique_ptr<ScratchFile> scratch_;
  std::unique_ptr<DoubleBuffer> from_scratch_;  ///< the group that is summed next is under way
};

template <typename F>
void OutEdgeSums::contribute(size_t relation, F&& f) {
  for (const ColumnKind kind : kColumnKinds) {
    double* const values = relations_[relation]->values[kind].data();
    relations_[relation]->edges.columns().for_each(
        kind, threads_, [&](int64_t v, int64_t rank, int64_t degree) { values[rank] = f(v, degree); });
  }
}

}  // namespace tiering
