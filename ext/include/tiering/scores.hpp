// Kernels that score nodes.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <tiering/buffer.hpp>
#include <tiering/io/stream.hpp>
#include <tiering/views.hpp>
#include <vector>

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
  void check(int64_t num_nodes, const std::string& who) const;

  /// Writes the values of the nodes first, first + 1, ...
  void write(int64_t first, std::span<double> values) const;

  /// The values of `num_nodes` nodes, written by all threads: most of the time goes into the first touch of their pages.
  Buffer<double> to_vector(int64_t num_nodes, int threads) const;
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

}  // namespace tiering
