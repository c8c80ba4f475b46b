// Kernels that score nodes.
#pragma once

#include <array>
#include <limits>
#include <optional>
#include <tiering/buffer.hpp>
#include <tiering/io/stream.hpp>
#include <tiering/parallel.hpp>
#include <tiering/views.hpp>

namespace tiering {

/// One relation of a graph: edges from nodes of `src_type` to nodes of `dst_type`, columns = dst_type.
struct ScoreRelation {
  int src_type = 0;
  int dst_type = 0;
  CscView csc;
  DirectFile file = {};  ///< holds the indices, if it is better read than their mapping
};

/// The memory budget of a kernel, and the directory for edges beyond it.
struct ScoreMemory {
  int64_t bytes = std::numeric_limits<int64_t>::max();  ///< results included; the CSC is not: it may be mapped
  std::string scratch = ".";                            ///< directory for a nameless file, if there is need
  std::function<void()> poll = [] {};                   ///< called now and then; what it throws ends the work
};

/// The sizes of a relation that decide what sweeps over its edges take.
struct SweepRelation {
  int64_t sources;  ///< nodes of the source type
  int64_t columns;  ///< and of the destination type
  int64_t edges;
  std::span<const int64_t> degrees = {};  ///< in-degrees of some nodes that stand for all; none: they may be any
};

/// Memory and disk of sweeps in bytes, excluding the caller's vectors.
struct SweepNeed {
  int64_t minimum;     ///< memory with which they can be done, whatever the graph of these sizes
  int64_t sufficient;  ///< memory with which they are as fast as ever
  int64_t scratch;     ///< of edges that are spilled with the memory given, about
};

/// Plans the sweeps of the kernels below. `from_files`: indices are read from files (ScoreRelation::file).
SweepNeed plan_sweeps(const std::vector<SweepRelation>& relations, int threads,
                      int64_t memory = std::numeric_limits<int64_t>::max(), bool from_files = false);

/// A value for each of n nodes: all of them one by one, or one for some nodes and another for the rest.
struct NodeValues {
  std::span<const double> each;       ///< n values; or none, and
  double rest = 0, chosen = 0;        ///< `chosen` for the ids, `rest` for others
  std::span<const int64_t> ids = {};  ///< ascending

  /// Throws InputError unless they are those of `num_nodes` nodes; `who` begins its message: "p0 needs".
  void check(int64_t num_nodes, const std::string& who) const {
    if (!each.empty()) {
      TIERING_EXPECT(static_cast<int64_t>(each.size()) == num_nodes && ids.empty(), who, " ", num_nodes,
                     " values, found ", each.size());
      return;
    }
    for (size_t i = 0; i < ids.size(); ++i) {
      TIERING_EXPECT(ids[i] >= 0 && ids[i] < num_nodes, who, " ids, found ", ids[i], ", outside 0..", num_nodes - 1);
      TIERING_EXPECT(i == 0 || ids[i - 1] < ids[i], who, " ascending ids, found ", ids[i], " behind ",
                     i == 0 ? 0 : ids[i - 1]);
    }
  }

  /// Writes the values of the nodes first, first + 1, ...
  void write(int64_t first, std::span<double> values) const {
    if (!each.empty()) {
      std::copy_n(each.begin() + first, values.size(), values.begin());
      return;
    }
    std::fill(values.begin(), values.end(), rest);
    const int64_t end = first + static_cast<int64_t>(values.size());
    for (auto at = std::lower_bound(ids.begin(), ids.end(), first); at != ids.end(); ++at) {
      const int64_t id = read_once(*at);
      if (id >= end) break;
      if (id < first) changed_meanwhile();
      values[id - first] = chosen;
    }
  }

  /// The values of `num_nodes` nodes, written by all threads: most of the time goes into the first touch of their
  /// pages.
  Buffer<double> to_vector(int64_t num_nodes, int threads) const {
    Buffer<double> values(num_nodes);
    for_cuts(threads, num_nodes, [&](int64_t begin, int64_t end) {
      write(begin, values.span().subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
    });
    return values;
  }
};

struct PagerankOptions {
  double damping = 0.85;
  int max_sweeps = 5;
  double tolerance = 0;  ///< stop once the L1 change of a sweep is at most this; 0 = always max_sweeps
  int threads = 1;
  ScoreMemory memory = {};
};

struct PagerankResult {
  std::vector<Buffer<double>> scores;  ///< per node type
  int sweeps = 0;                      ///< sweeps done
  double residual = 0;                 ///< L1 change of the last sweep, over all types
};

/// Reverse PageRank over all relations; see scores/pagerank.cpp. start and teleport hold the values of each node type.
PagerankResult reverse_pagerank(const std::vector<ScoreRelation>& relations, const std::vector<int64_t>& num_nodes,
                                const std::vector<NodeValues>& start, const std::vector<NodeValues>& teleport,
                                const PagerankOptions& options);

struct InclusionOptions {
  bool only_new = false;     ///< a node asks in the hop after it was found; else in every hop from then on
  bool replacement = false;  ///< a list is drawn from with replacement
  int threads = 1;
  ScoreMemory memory = {};
};

struct InclusionResult {
  std::vector<Buffer<double>> found;  ///< per node type: probability that a batch contains the node
  std::vector<Buffer<double>> reads;  ///< per relation and destination: expected reads of its list in a batch
};

/// One sweep of it for the nodes of a task, which begin a bin of 2^shift: `scores` become those after it. Returns the L1
/// change of each bin. `restart` holds the values of these nodes, ids from 0.
std::vector<double> update_scores(std::span<const double> sums, const NodeValues& restart, double damping, int shift,
                                  std::span<double> scores);

/// Vertex inclusion probability of a sampled batch; see scores/inclusion.cpp. seeds holds, per node type, the
/// probability of each node to be a seed; fanouts[hop][relation] is -1 for the whole list.
InclusionResult inclusion_probability(const std::vector<ScoreRelation>& relations,
                                      const std::vector<int64_t>& num_nodes, const std::vector<NodeValues>& seeds,
                                      const std::vector<std::vector<int64_t>>& fanouts,
                                      const InclusionOptions& options);

/// Adjacency lists of some columns between hops, for a task that holds a part of the graph.
struct DrawnLists {
  std::span<const int64_t> degrees;
  std::span<double> drawn;    ///< D
  std::span<double> waiting;  ///< A; empty where nodes ask only once
};

/// One hop of inclusion_probability() for some columns: they draw, and `logs` becomes log(1 - D), 0 for empty lists.
void draw_lists(const DrawnLists& lists, std::span<const double> fresh, int64_t fanout, bool replacement,
                std::span<double> logs);

/// One hop of it for some nodes: `found`, F of the hop before, becomes that of this one.
void find_nodes(std::span<const double> seeds, std::span<const double> sums, std::span<double> found);

/// How sources are cut into bins: bin b has the nodes [b << shift, (b + 1) << shift) of a type of `num_nodes`.
int source_bin_shift(int64_t num_nodes);

/// In-degree from which a column of a relation with `columns` columns is summed before the others.
int64_t high_column_degree(int64_t columns, int64_t num_sources);

/// The edges of some columns for who sums them elsewhere (scores/binned_edges.hpp): by kind of column, those of high
/// degree first, then by bin of sources, in a bin by blocks of 2^16 columns with edges of that kind.
struct BinnedCsc {
  /// Throws InputError for an index outside [0, num_src), or an indptr that is not in order.
  BinnedCsc(const CscView& csc, int64_t num_src, int64_t high_degree, int threads);

  Buffer<uint32_t> edges;
  /// Per kind, shape (blocks + 1, bins): where the edges of a block begin in a bin; the last row: where the bin ends.
  std::array<Buffer<int64_t>, 2> starts;
};

/// Counts edges by bin of their source. Throws InputError as BinnedCsc does.
Buffer<int64_t> count_by_bin(const CscView& csc, int64_t num_src, int threads);

/// Sums over out-edges by who holds some bins of the sources, and gets the edges into them part after part: the same
/// bytes as a sweep over the whole graph (scores/out_edge_sums.hpp) gives. Parts come in the canonical order: relations
/// in list order, in each the columns of high degree before the others, columns ascending. Memory: 8 bytes per source,
/// and 8 more in bins that are summed in pieces; 8 bytes per column of the largest part.
class BinSums {
 public:
  /// Sums of `num_sources` sources, the first of which begins a bin of 2^shift. `bin_edges`: edges of each bin, of all
  /// relations; `all_edges`: of the whole graph, all types. A bin of more edges than max(min_piece, all_edges /
  /// max_pieces) is summed in pieces; by default both are as in a sweep. Throws InputError for sizes that do not fit
  /// together.
  BinSums(int64_t num_sources, int shift, std::span<const int64_t> bin_edges, int64_t all_edges, int64_t min_piece = 0,
          int64_t max_pieces = 0);

  /// Adds the values of the columns of a part, one after the other in `values`, to the sources of its edges. `edges` and
  /// `starts` are those of one kind and of these bins of a BinnedCsc. Without `values`, of a relation that adds nothing,
  /// edges only count for where pieces end. Throws InputError for starts or values that do not fit, and for more edges than a bin has; the sums
  /// are then undefined.
  void add(std::span<const uint32_t> edges, std::span<const int64_t> starts,
           const std::optional<std::vector<std::span<const double>>>& values, int threads);

  /// The sums, once all edges were added; InputError before.
  Buffer<double> take();

 private:
  struct Bin {
    int64_t edges, pieces, piece, done, piece_end;
    std::vector<double> total;
  };

  void end_piece(Bin& bin, double* sums) const;

  int shift_;
  int64_t num_sources_;
  Buffer<double> sums_, values_;
  std::vector<Bin> bins_;
};

}  // namespace tiering
