// Kernels that score nodes.
#pragma once

#include <cstdint>
#include <span>
#include <tiering/buffer.hpp>
#include <tiering/views.hpp>
#include <vector>

namespace tiering {

/// One relation of a graph: edges from nodes of `src_type` to nodes of `dst_type`, columns = dst_type.
struct ScoreRelation {
  int src_type = 0;
  int dst_type = 0;
  CscView csc;
};

struct PagerankOptions {
  double damping = 0.85;
  int max_sweeps = 5;
  double tolerance = 0;  ///< stop once the L1 change of a sweep is at most this; 0 = always max_sweeps
  int threads = 1;
};

struct PagerankResult {
  std::vector<Buffer<double>> scores;  ///< per node type
  int sweeps = 0;                      ///< sweeps done
  double residual = 0;                 ///< L1 change of the last sweep, over all types
};

/// Reverse PageRank over all relations; see scores/pagerank.cpp. start and teleport hold one vector per node
/// type.
PagerankResult reverse_pagerank(const std::vector<ScoreRelation>& relations,
                                const std::vector<int64_t>& num_nodes,
                                const std::vector<std::span<const double>>& start,
                                const std::vector<std::span<const double>>& teleport,
                                const PagerankOptions& options);

struct InclusionOptions {
  bool only_new = false;     ///< a node asks in the hop after it was found; else in every hop from then on
  bool replacement = false;  ///< a list is drawn from with replacement
  int threads = 1;
};

struct InclusionResult {
  std::vector<Buffer<double>> found;  ///< per node type: probability that a batch contains the node
  std::vector<Buffer<double>> reads;  ///< per relation and destination: expected reads of its list in a batch
};

/// Vertex inclusion probability of a sampled batch; see scores/inclusion.cpp. seeds holds, per node type, the
/// probability of each node to be a seed; fanouts[hop][relation] is -1 for the whole list.
InclusionResult inclusion_probability(const std::vector<ScoreRelation>& relations,
                                      const std::vector<int64_t>& num_nodes,
                                      const std::vector<std::span<const double>>& seeds,
                                      const std::vector<std::vector<int64_t>>& fanouts,
                                      const InclusionOptions& options);

}  // namespace tiering
