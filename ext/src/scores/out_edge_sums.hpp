// Sums over out-edges from the CSC alone, by propagation blocking: the kernel of the scores that flow against
// the edges.
//
// Returns:    for every node u, the sum over relations r from u's type, over edges u -> v of r, of x_r(v).
// Approach:   a column of the CSC *scatters*. Once, the edges of each relation are partitioned by source into
//             bins whose accumulators fit the private cache (partition.hpp). A sweep then streams each bin:
//             sums[u] += x_r[v], where v ascends within the bin. Columns come in blocks, so that an edge is
//             16 bits of u and 16 bits of v.
// Why:        building a CSR costs as much as five sweeps; pushing with atomics costs more and is not
//             reproducible.
// Memory:     4 bytes per edge, 8 per node and relation.
// Parallelism and determinism: a bin has one owner; its sums run in float64, relations in list
//             order, contributors in ascending id. Same bytes for any number of threads.
// Source:     Beamer, Asanovic, Patterson, "Reducing PageRank communication via propagation blocking"
//             (IPDPS'17).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <tiering/partition.hpp>
#include <tiering/scores.hpp>
#include <vector>

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
  /// Checks the relations (types, shapes, indptr, indices), then bins their edges.
  OutEdgeSums(const std::vector<ScoreRelation>& relations, std::vector<int64_t> num_nodes, int threads);

  /// x of a relation: what each column hands to its in-neighbours. The caller fills it before a sweep.
  std::span<double> handed_out(size_t relation) { return relations_[relation].values.span(); }

  /// Says whether a relation takes part in the sweeps from now on; at first all do.
  void set_active(size_t relation, bool active) { relations_[relation].active = active; }

  /// Number of ranges a sweep reports.
  int64_t num_ranges() const { return static_cast<int64_t>(bins_.size()); }

  /// One sweep: calls use(i, range) once for every range i, in any order and from all threads. Every node is
  /// in one range; the ranges depend on the graph alone.
  void sweep(const std::function<void(int64_t, const SumRange&)>& use) const;

 private:
  /// An edge as a bin keeps it: source within the bin in the low half, column within the block in the high
  /// half.
  using BinRecord = uint32_t;

  /// Where the records of one block of columns begin in each bin, for one chunk of the edges.
  struct BlockMarks {
    int64_t block;
    std::vector<int64_t> begins;  ///< per bin, position among all records
  };

  struct BinnedRelation {
    int src_type;
    bool active;
    Partition<BinRecord> bins;
    std::vector<std::vector<BlockMarks>> marks;  ///< per chunk: blocks ascending, then the end
    Buffer<double> values;                       ///< per column
  };

  struct Bin {
    int type;
    int64_t index;
  };

  template <typename Index, typename Writer>
  static std::vector<BlockMarks> bin_entries(const CscView& csc, std::span<const Index> indices,
                                             uint32_t source_mask, int64_t begin, int64_t end,
                                             Writer& writer);
  static BinnedRelation bin_relation(const ScoreRelation& relation, int64_t num_src, int threads);
  static void gather_bin(const BinnedRelation& relation, int64_t bin, double* sums);
  SumRange sum_bin(const Bin& bin) const;

  std::vector<int64_t> num_nodes_;
  int threads_;
  std::vector<BinnedRelation> relations_;
  std::vector<Bin> bins_;
};

}  // namespace tiering
