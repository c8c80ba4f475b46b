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

SumPlan::SumPlan(const std::vector<BucketGrid>& grids, std::vector<Relation> relations, int chunks,
                 const SumLimits& limits)
    : relations_(std::move(relations)), chunks_(chunks), limits_(limits) {
  for (size_t t = 0; t < grids.size(); ++t) {
    first_bins_.push_back(static_cast<int64_t>(bins_.size()));
    for (int64_t b = 0; b < grids[t].num_buckets(); ++b) {
      SumBin bin{static_cast<int>(t), b, 0, 1};
      for (const auto& r : relations_)
        if (r.src_type == bin.type)
          for (const ColumnKind kind : kColumnKinds) bin.edges += r.edges->size(kind, b);
      bins_.push_back(bin);
      sum_stride_ = std::max(sum_stride_, grids[t].end_key(b) - grids[t].first_key(b));
    }
  }
  first_bins_.push_back(static_cast<int64_t>(bins_.size()));
  cut_pieces();
}

/// Cuts the bins of many edges into pieces: no unit of work is larger than that.
void SumPlan::cut_pieces() {
  int64_t all_edges = 0, turn = 0;
  for (const SumBin& bin : bins_) all_edges += bin.edges;
  for (size_t b = 0; b < bins_.size(); ++b) {
    SumBin& bin = bins_[b];
    bin.pieces = pieces_of(bin.edges, all_edges, limits_);
    for (int64_t p = 0; p < bin.pieces; ++p) {
      const auto [from, to] = even_cut(bin.edges, static_cast<int>(bin.pieces), static_cast<int>(p));
      pieces_.push_back({static_cast<int64_t>(b), p, from, to, bin.pieces > 1 ? turn++ : -1});
    }
  }
}

int64_t SumPlan::largest_piece() const {
  int64_t largest = 0;
  for (const SumPiece& piece : pieces_) largest = std::max(largest, piece.to - piece.from);
  return largest;
}

void SumPlan::fit(int64_t bytes) {
  place();
  int64_t low = 0;
  for (const auto& r : relations_)
    for (int64_t b = 0; b < r.edges->num_bins(); ++b) low += r.edges->size(ColumnKind::kLow, b);
  const int64_t largest = std::max(limits_.min_piece, largest_piece());
  const SumShares shares = SumShares::of(bytes, num_resident_, low, piece_places(largest, relations_.size(), chunks_));
  if (shares.resident < num_resident_) spill(shares.resident);
  cut_groups(shares.group);
}

/// Spills bins, evenly spread, until at most `resident` edges stay in memory.
void SumPlan::spill(int64_t resident) {
  int64_t all = 0;
  for (const SumBin& bin : bins_) all += bin.edges;
  // Runs are padded: the share grows until what they take in memory fits, too.
  for (double share = 1 - static_cast<double>(resident) / static_cast<double>(all);; share += 0.01) {
    double due = 0;
    for (SumBin& bin : bins_) {
      const auto edges = static_cast<double>(bin.edges);
      due += share * edges;
      bin.spilled = bin.edges > 0 && due >= edges / 2;
      if (bin.spilled) due -= edges;
    }
    place();
    if (num_resident_ <= resident || share >= 1) return;
  }
}

/// Gives all edges their places: bin after bin, in the order in which they are added.
void SumPlan::place() {
  int64_t value = 0;
  num_resident_ = num_spilled_ = 0;
  value_shifts_.assign(relations_.size(), {});
  for (const SumBin& bin : bins_) {
    const int64_t alignment = bin.spilled ? kPageEdges : kLineEdges;
    int64_t& end = bin.spilled ? num_spilled_ : num_resident_;
    for (size_t r = 0; r < relations_.size(); ++r) {
      if (relations_[r].src_type != bin.type) continue;
      end = relations_[r].edges->place(ColumnKind::kHigh, bin.index, end, alignment);
      const int64_t begin = end;
      value_shifts_[r].push_back(value - begin);
      end = relations_[r].edges->place(ColumnKind::kLow, bin.index, begin, alignment);
      value += end - begin;
    }
  }
}

std::vector<char> SumPlan::spilled_buckets(size_t relation) const {
  std::vector<char> spilled;
  for (size_t kind = 0; kind < kColumnKinds.size(); ++kind)
    for (int64_t b = 0; b < relations_[relation].edges->num_bins(); ++b)
      spilled.push_back(own_bin(relation, b).spilled);
  return spilled;
}

/// A group of one piece.
SumGroup SumPlan::alone(int64_t piece) const {
  SumGroup group{piece, piece + 1, {}, {}};
  const SumBin& bin = bin_of(piece);
  visit_parts(at(piece), [&](size_t r, ColumnKind kind, int64_t from, int64_t to) {
    const BinnedEdges& edges = *relations_[r].edges;
    const int64_t begin = edges.position(kind, bin.index, from), end = edges.position(kind, bin.index, to - 1) + 1,
                  shift = value_shift(r, bin.index);
    if (kind == ColumnKind::kLow) group.values.extend(begin + shift, end + shift);
    if (bin.spilled) group.spilled.extend(round_down(begin, kPageEdges), round_up(end, kPageEdges));
  });
  return group;
}

/// Cuts pieces in a row into groups, such that none has more than `most` edges of low degree, or spilled, unless one
/// piece alone has.
void SumPlan::cut_groups(int64_t most) {
  groups_.clear();
  for (int64_t p = 0; p < static_cast<int64_t>(pieces_.size()); ++p) {
    const SumGroup next = alone(p);
    SumGroup whole = groups_.empty() ? next : groups_.back();
    whole.end_piece = p + 1;
    whole.values.extend(next.values.first, next.values.end);
    whole.spilled.extend(next.spilled.first, next.spilled.end);
    if (!groups_.empty() && std::max(whole.values.size(), whole.spilled.size()) <= most)
      groups_.back() = whole;
    else
      groups_.push_back(next);
  }
}

std::pair<int64_t, int64_t> SumPlan::own_bins(const SumGroup& group, size_t relation) const {
  const auto type = static_cast<size_t>(relations_[relation].src_type);
  const int64_t first = first_bins_[type], count = first_bins_[type + 1] - first, low = at(group.first_piece).bin,
                high = at(group.end_piece - 1).bin;
  return {std::clamp<int64_t>(low - first, 0, count), std::clamp<int64_t>(high + 1 - first, 0, count)};
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
