#include "sum_plan.hpp"

namespace tiering {
namespace {

/// So many groups there may be before edges are rather spilled: each reads the values of all columns of low degree.
constexpr int64_t kMaxGroups = 16;

/// The least edges expanded together before others are rather spilled.
int64_t fewest_expanded(int64_t low, int64_t piece) { return std::max(std::min(piece, low), low / kMaxGroups); }

int64_t scaled(int64_t part, int64_t of, int64_t whole) {
  return of == 0
             ? 0
             : static_cast<int64_t>(static_cast<double>(part) / static_cast<double>(of) * static_cast<double>(whole));
}

/// The shape that takes the most memory among graphs of these sizes.
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

int64_t high_degree(int64_t columns, int64_t bins, const SumLimits& limits) {
  constexpr int64_t kValuesPerLine = kLineBytes / sizeof(double);
  if (columns <= limits.cached_columns) return 1;
  return std::clamp<int64_t>(bins / kValuesPerLine, 1, ColumnRanks::kMaxHighDegree);
}

int64_t pieces_of(int64_t edges, int64_t all_edges, const SumLimits& limits) {
  const int64_t most = std::max(limits.min_piece, all_edges / limits.max_pieces);
  return std::max<int64_t>(1, (edges + most - 1) / most);
}

int64_t RelationShape::kept_bytes(int chunks) const {
  constexpr int64_t kArrays = 6;  // of which large ones begin and end on huge pages
  const int64_t blocks = (high + low) / BinnedEdges::kBlockColumns + 2;
  return ColumnRanks::column_bytes(columns, high, low) + (high + low) * kValueBytes +
         BinnedEdges::start_bytes(bins, blocks, chunks) +
         std::min<int64_t>(kArrays * kHugePageBytes, columns * 2 * kValueBytes);
}

SumShares SumShares::of(int64_t bytes, int64_t edges, int64_t low, int64_t piece) {
  const int64_t values = (bytes - edges * kEdgeBytes) / kValueBytes;  // that fit in addition to all edges
  if (values >= fewest_expanded(low, piece)) return {edges, std::max(piece, std::min(values, low / kSumGroups))};
  const int64_t group = std::max(piece, std::min(edges / kMaxGroups, bytes / (2 * kGroupEdgeBytes)));
  return {std::max<int64_t>(0, bytes - kGroupPageBytes - group * kGroupEdgeBytes) / kEdgeBytes, group};
}

int64_t sum_bytes(int threads, int64_t stride) {
  return std::max<int64_t>(threads * stride * kValueBytes, 2 * kHugePageBytes) + stride * kValueBytes;
}

int64_t piece_places(int64_t largest, size_t relations, int chunks) {
  return largest + static_cast<int64_t>(2 * relations) * chunks * kPageEdges;
}

/// By the rules that the sweeps follow themselves, before any edge is read: from sizes and a sample of the degrees.
SweepNeed plan_sweeps(const std::vector<SweepRelation>& relations, int threads, int64_t memory, bool from_files) {
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
    padding += 2 * largest.bins * threads * kLineEdges;
    staging = std::max(staging, 2 * largest.bins * (threads * BinnedEdges::kLineBuffer + kScratchAlignment));
  }
  const int64_t largest_piece = std::max(limits.min_piece, edges / limits.max_pieces),
                piece = piece_places(largest_piece, relations.size(), threads),
                in_memory = (edges + padding) * kEdgeBytes + std::max(piece, edges / kSumGroups) * kValueBytes,
                spilled = std::max(piece * kGroupEdgeBytes + kGroupPageBytes, staging);
  SweepNeed need{kept + reading + std::min(spilled, in_memory), kept + reading + std::max(in_memory, staging), 0};
  if (memory < need.sufficient) {
    const int64_t room = memory - likely_kept - (from_files ? reading : 0);
    need.scratch = std::max<int64_t>(0, edges - SumShares::of(room, edges, low_edges, piece).resident) * kEdgeBytes;
  }
  return need;
}

}  // namespace tiering
