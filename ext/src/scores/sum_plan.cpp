#include "sum_plan.hpp"

namespace tiering {
namespace {

/// So many groups there may be before edges are rather spilled: each reads the values of all columns of low degree.
constexpr int64_t kMostGroups = 16;

int64_t rounded_up(int64_t place) { return (place + kPageEdges - 1) / kPageEdges * kPageEdges; }
int64_t rounded_down(int64_t place) { return place / kPageEdges * kPageEdges; }

/// The least edges expanded together before others are rather spilled.
int64_t fewest_expanded(int64_t low, int64_t piece) {
  return std::max(std::min(piece, low), low / kMostGroups);
}

}  // namespace

int64_t high_degree(int64_t columns, int64_t bins, const SumLimits& limits) {
  constexpr int64_t kValuesPerLine = kLineBytes / sizeof(double);
  if (columns <= limits.cached_columns) return 1;
  return std::clamp<int64_t>(bins / kValuesPerLine, 1, ColumnRanks::kMaxHighDegree);
}

int64_t RelationShape::kept_bytes(int chunks) const {
  constexpr int64_t kArrays = 6;  // of which large ones begin and end on huge pages
  const int64_t blocks = (high + low) / BinnedEdges::kBlockColumns + 2;
  return ColumnRanks::column_bytes(columns, high, low) + (high + low) * kValueBytes +
         BinnedEdges::mark_bytes(bins, blocks, chunks) +
         std::min<int64_t>(kArrays * kHugePageBytes, columns * 2 * kValueBytes);
}

SumShares SumShares::of(int64_t bytes, int64_t edges, int64_t low, int64_t piece) {
  const int64_t values =
      (bytes - edges * kEdgeBytes) / kValueBytes;  // that there is room for beside all edges
  if (values >= fewest_expanded(low, piece))
    return {edges, std::max(piece, std::min(values, low / kSumGroups))};
  const int64_t group = std::max(piece, std::min(edges / kMostGroups, bytes / (2 * kGroupEdgeBytes)));
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
  const int64_t most = std::max(limits_.least_piece, all_edges / limits_.most_pieces);
  for (size_t b = 0; b < bins_.size(); ++b) {
    SumBin& bin = bins_[b];
    bin.pieces = std::max<int64_t>(1, (bin.edges + most - 1) / most);
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
  const int64_t largest = std::max(limits_.least_piece, largest_piece());
  const SumShares shares =
      SumShares::of(bytes, num_resident_, low, piece_places(largest, relations_.size(), chunks_));
  if (shares.resident < num_resident_) spill(shares.resident);
  cut_groups(shares.group);
}

/// Spills so many bins, evenly, that at most `resident` edges stay in memory.
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
    const int64_t alignment = bin.spilled ? kPageEdges : kLineRecords<BinnedEdge>;
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
  SumGroup group{piece, piece + 1, 0, 0, 0, 0};
  bool first_low = true, first_spilled = bin_of(piece).spilled;
  const int64_t bin = bin_of(piece).index;
  visit_parts(at(piece), [&](size_t r, ColumnKind kind, int64_t from, int64_t to) {
    const BinnedEdges& edges = *relations_[r].edges;
    const int64_t begin = edges.position(kind, bin, from), end = edges.position(kind, bin, to - 1) + 1;
    if (kind == ColumnKind::kLow) {
      if (std::exchange(first_low, false)) group.first_value = begin + value_shift(r, bin);
      group.end_value = end + value_shift(r, bin);
    }
    if (!bin_of(piece).spilled) return;
    if (std::exchange(first_spilled, false)) group.first_spilled = rounded_down(begin);
    group.end_spilled = rounded_up(end);
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
    auto extend = [](int64_t& first, int64_t& end, int64_t from, int64_t to) {
      if (from == to) return;
      if (first == end) first = from;
      end = to;
    };
    extend(whole.first_value, whole.end_value, next.first_value, next.end_value);
    extend(whole.first_spilled, whole.end_spilled, next.first_spilled, next.end_spilled);
    if (!groups_.empty() &&
        std::max(whole.end_value - whole.first_value, whole.end_spilled - whole.first_spilled) <= most)
      groups_.back() = whole;
    else
      groups_.push_back(next);
  }
}

std::pair<int64_t, int64_t> SumPlan::own_bins(const SumGroup& group, size_t relation) const {
  const auto type = static_cast<size_t>(relations_[relation].src_type);
  const int64_t first = first_bins_[type], count = first_bins_[type + 1] - first,
                low = at(group.first_piece).bin, high = at(group.end_piece - 1).bin;
  return {std::clamp<int64_t>(low - first, 0, count), std::clamp<int64_t>(high + 1 - first, 0, count)};
}

}  // namespace tiering
