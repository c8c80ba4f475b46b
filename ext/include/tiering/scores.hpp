// Kernels that score nodes.
#pragma once

#include <cstdint>
#include <span>
#include <tiering/buffer.hpp>
#include <tiering/views.hpp>
#include <vector>

namespace tiering {

/// One relation of a graph: edges from nodes of `src_type` to nodes of `dst_type`, columns = dst_type.
struct PagerankRelation {
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
PagerankResult reverse_pagerank(const std::vector<PagerankRelation>& relations,
                                const std::vector<int64_t>& num_nodes,
                                const std::vector<std::span<const double>>& start,
                                const std::vector<std::span<const double>>& teleport,
                                const PagerankOptions& options);

}  // namespace tiering
