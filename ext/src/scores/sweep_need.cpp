// What sweeps over the edges of a graph take, before any edge is read: by the rules that the sweeps follow themselves
// (sum_plan.hpp), from sizes and a sample of the degrees.
#include <algorithm>
#include <tiering/io/double_buffer.hpp>
#include <tiering/scores.hpp>

#include "sum_plan.hpp"

namespace tiering {
namespace {

int64_t scaled(int64_t part, int64_t of, int64_t whole) {
  return of == 0 ? 0
                 : static_cast<int64_t>(static_cast<double>(part) / static_cast<double>(of) *
                                        static_cast<double>(whole));
}

/// Of all graphs of these sizes, one that takes the most memory.
RelationShape largest_shape(const SweepRelation& r, int64_t high) {
  RelationShape shape{r.columns, source_bins(r.sources).num_buckets(), r.edges, 0, 0, r.edges};
  shape.high = std::min(r.columns, r.edges / high);
  shape.low = std::min(r.columns, r.edges) - shape.high;
  return shape;
}

/// As if all columns were like those whose degrees are known.
RelationShape likely_shape(const SweepRelation& r, int64_t high, RelationShape shape) {
  if (r.degrees.empty()) return shape;
  int64_t filled = 0, many = 0, edges = 0, low_edges = 0;
  for (const int64_t degree : r.degrees) {
    filled += degree > 0;
    many += degree >= high;
    edges += degree;
    low_edges += degree < high ? degree : 0;
  }
  const auto sampled = static_cast<int64_t>(r.degrees.size());
  shape.high = std::min(shape.high, scaled(many, sampled, r.columns));
  shape.low = std::max<int64_t>(0, std::min(r.edges, scaled(filled, sampled, r.columns)) - shape.high);
  shape.low_edges = scaled(low_edges, edges, r.edges);
  return shape;
}

}  // namespace

SweepNeed plan_sweeps(const std::vector<SweepRelation>& relations, int threads, int64_t memory,
                      bool from_files) {
  const SumLimits limits;
  const int64_t reading = threads * kStepMemory;
  int64_t kept = sum_bytes(threads, BinnedEdges::kBlockColumns), likely_kept = kept;
  int64_t edges = 0, low_edges = 0, padding = 0, staging = 0;
  for (const SweepRelation& r : relations) {
    const int64_t high = high_degree(r.columns, source_bins(r.sources).num_buckets(), limits);
    const RelationShape largest = largest_shape(r, high), likely = likely_shape(r, high, largest);
    kept += largest.kept_bytes(threads);
    likely_kept += likely.kept_bytes(threads);
    edges += r.edges;
    low_edges += likely.low_edges;
    padding += 2 * largest.bins * threads * kLineRecords<BinnedEdge>;
    staging = std::max(staging, 2 * largest.bins * (threads * BinnedEdges::kLineBuffer + kScratchAlignment));
  }
  const int64_t largest_piece = std::max(limits.least_piece, edges / limits.most_pieces),
                piece = piece_places(largest_piece, relations.size(), threads),
                in_memory =
                    (edges + padding) * kEdgeBytes + std::max(piece, edges / kSumGroups) * kValueBytes,
                spilled = std::max(piece * kGroupEdgeBytes + kGroupPageBytes, staging);
  SweepNeed need{kept + reading + std::min(spilled, in_memory), kept + reading + std::max(in_memory, staging),
                 0};
  if (memory < need.sufficient) {
    const int64_t room = memory - likely_kept - (from_files ? reading : 0);
    need.scratch =
        std::max<int64_t>(0, edges - SumShares::of(room, edges, low_edges, piece).resident) * kEdgeBytes;
  }
  return need;
}

}  // namespace tiering
