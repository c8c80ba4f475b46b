#include "sum_plan.hpp"

#include <algorithm>
#include <cmath>
#include <tiering/io/double_buffer.hpp>

namespace tiering {
namespace {

constexpr int64_t kFewestGroups = 4;
constexpr int64_t kEdgeBytes = sizeof(BinnedEdge);
// For the choice only, from measurements: a thread's time for an edge, its reading rate, and a disk's.
constexpr double kSecondsPerEdge = 2.5e-9, kBytesPerSecond = 5e9, kDiskBytesPerSecond = 1.2e9;

int64_t rounded_up(int64_t place) { return (place + kPageEdges - 1) / kPageEdges * kPageEdges; }
int64_t rounded_down(int64_t place) { return place / kPageEdges * kPageEdges; }

/// Places of a range that could be on disk.
int64_t movable(const GroupRange& range) {
  return std::max<int64_t>(0, range.disk_end - rounded_up(range.begin));
}

}  // namespace

SumPlan::SumPlan(const std::vector<BucketGrid>& grids, std::vector<PlannedRelation> relations,
                 const SumLimits& limits)
    : relations_(std::move(relations)), limits_(limits) {
  add_bins(grids);
  cut_pieces();
}

void SumPlan::add_bins(const std::vector<BucketGrid>& grids) {
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
}

/// Cuts the bins of many edges into pieces: no unit of work is larger than that.
void SumPlan::cut_pieces() {
  int64_t all_edges = 0;
  for (const SumBin& bin : bins_) all_edges += bin.edges;
  const int64_t most = std::max(limits_.least_piece, all_edges / limits_.most_pieces);
  for (size_t b = 0; b < bins_.size(); ++b) {
    SumBin& bin = bins_[b];
    bin.pieces = std::max<int64_t>(1, (bin.edges + most - 1) / most);
    for (int64_t p = 0; p < bin.pieces; ++p) {
      const auto [from, to] = even_cut(bin.edges, static_cast<int>(bin.pieces), static_cast<int>(p));
      pieces_.push_back({static_cast<int64_t>(b), p, from, to, 0});
      int64_t sparse = 0;
      for (size_t r = 0; r < relations_.size(); ++r)
        sparse += local_edge(bin, r, ColumnKind::kSparse, to) - local_edge(bin, r, ColumnKind::kSparse, from);
      sparse_.push_back(sparse);
    }
  }
}

/// How many of a bin's first `edge` edges are of a relation and kind.
int64_t SumPlan::local_edge(const SumBin& bin, size_t relation, ColumnKind kind, int64_t edge) const {
  if (relations_[relation].src_type != bin.type) return 0;
  int64_t before = 0;
  for (size_t r = 0; r < relation; ++r)
    if (relations_[r].src_type == bin.type)
      for (const ColumnKind k : kColumnKinds) before += relations_[r].edges->size(k, bin.index);
  if (kind == ColumnKind::kSparse) before += relations_[relation].edges->size(ColumnKind::kDense, bin.index);
  return std::clamp<int64_t>(edge - before, 0, relations_[relation].edges->size(kind, bin.index));
}

int64_t SumPlan::largest_piece() const {
  int64_t largest = 0;
  for (const SumPiece& piece : pieces_) largest = std::max(largest, piece.to - piece.from);
  return largest;
}

/// Pieces in a row, in about `parts` groups of equal need: expanded values and, from disk, edges too.
std::vector<SumGroup> SumPlan::grouped(int64_t parts, bool from_disk) const {
  auto weight = [&](size_t p) { return sparse_[p] + (from_disk ? pieces_[p].to - pieces_[p].from : 0); };
  int64_t total = 0;
  for (size_t p = 0; p < pieces_.size(); ++p) total += weight(p);
  const int64_t wanted = std::max(limits_.least_group, total / parts + 1);
  std::vector<SumGroup> groups;
  for (size_t p = 0; p < pieces_.size();) {
    SumGroup group{static_cast<int64_t>(p), 0, {}};
    for (int64_t sum = 0; p < pieces_.size(); ++p) {
      if (sum > 0 && sum + weight(p) > wanted) break;
      sum += weight(p);
      group.num_sums += bins_[static_cast<size_t>(pieces_[p].bin)].pieces > 1;
    }
    group.end_piece = static_cast<int64_t>(p);
    set_ranges(group);
    groups.push_back(std::move(group));
  }
  return groups;
}

/// The positions of a group's edges, none of them on disk yet.
void SumPlan::set_ranges(SumGroup& group) const {
  for (size_t r = 0; r < relations_.size(); ++r) {
    auto& ranges = group.ranges.emplace_back();
    for (const ColumnKind kind : kColumnKinds) {
      GroupRange& range = ranges[static_cast<size_t>(kind)];
      range = range_of(group, r, kind);
      if (kind != ColumnKind::kSparse) continue;
      range.value_at = group.num_values - range.begin;
      group.num_values += range.end - range.begin;
    }
  }
}

std::pair<int64_t, int64_t> SumPlan::own_bins(const SumGroup& group, size_t relation) const {
  const auto type = static_cast<size_t>(relations_[relation].src_type);
  const int64_t first = first_bins_[type], count = first_bins_[type + 1] - first,
                low = pieces_[static_cast<size_t>(group.first_piece)].bin,
                high = pieces_[static_cast<size_t>(group.end_piece) - 1].bin;
  return {std::clamp<int64_t>(low - first, 0, count), std::clamp<int64_t>(high + 1 - first, 0, count)};
}

GroupRange SumPlan::range_of(const SumGroup& group, size_t relation, ColumnKind kind) const {
  const auto [low, end_bin] = own_bins(group, relation);
  if (low == end_bin) return {};
  const BinnedEdges& edges = *relations_[relation].edges;
  const int64_t first = first_bins_[static_cast<size_t>(relations_[relation].src_type)], high = end_bin - 1;
  const SumPiece &first_piece = pieces_[static_cast<size_t>(group.first_piece)],
                 &last_piece = pieces_[static_cast<size_t>(group.end_piece) - 1];
  auto local = [&](int64_t bin, int64_t edge) {
    return local_edge(bins_[static_cast<size_t>(first + bin)], relation, kind, edge);
  };
  const int64_t whole = edges.size(kind, high),
                from = first + low == first_piece.bin ? local(low, first_piece.from) : 0,
                to = first + high == last_piece.bin ? local(high, last_piece.to) : whole,
                begin = edges.position(kind, low, from),
                behind = edges.position(kind, high, std::max<int64_t>(to - 1, 0)) + (to > 0),
                end = std::max(begin, behind);
  // A page that two groups share stays in memory; behind the last edge of a bin a page has no other edges.
  const int64_t disk_end = to == whole ? rounded_up(end) : rounded_down(end);
  return {begin, disk_end, disk_end, end, 0, 0};
}

/// Puts a share of each group on disk, from the end of each range.
void SumPlan::put_on_disk(std::vector<SumGroup>& groups, double share) const {
  int64_t offset = 0;
  for (SumGroup& group : groups) {
    int64_t at = 0;
    for (auto& ranges : group.ranges)
      for (GroupRange& range : ranges) {
        const int64_t pages = movable(range) / kPageEdges,
                      moved = std::min(pages,
                                       static_cast<int64_t>(std::ceil(share * static_cast<double>(pages))));
        range.disk_begin = range.disk_end - moved * kPageEdges;
        range.disk_at = at;
        at += moved * kPageEdges;
      }
    group.disk_offset = offset;
    group.disk_bytes = at * kEdgeBytes;
    offset += group.disk_bytes;
  }
}

int64_t SumPlan::disk_bytes() const {
  return groups_.empty() ? 0 : groups_.back().disk_offset + groups_.back().disk_bytes;
}

int64_t SumPlan::buffer_bytes(const std::vector<SumGroup>& groups, int64_t sum_stride) {
  int64_t values = 0, sums = 0, disk = 0;
  for (const SumGroup& group : groups) {
    values = std::max(values, group.num_values);
    sums = std::max(sums, group.num_sums);
    disk = std::max(disk, group.disk_bytes);
  }
  const int64_t carried = sums > 0 ? 2 : 0;
  return (values + (sums + carried) * sum_stride) * static_cast<int64_t>(sizeof(double)) +
         (disk > 0 ? DoubleBuffer::memory_bytes(disk) : 0);
}

/// Bytes of all edges.
int64_t SumPlan::edge_bytes() const {
  int64_t bytes = 0;
  for (const auto& r : relations_) bytes += r.edges->num_places() * kEdgeBytes;
  return bytes;
}

int64_t SumPlan::memory_bytes() const { return edge_bytes() - disk_bytes(); }

/// Edges in memory and buffers.
int64_t SumPlan::bytes_of(const std::vector<SumGroup>& groups) const {
  int64_t bytes = edge_bytes() + buffer_bytes(groups, sum_stride_);
  for (const SumGroup& group : groups) bytes -= group.disk_bytes;
  return bytes;
}

int64_t SumPlan::plenty() const { return bytes_of(grouped(kFewestGroups, false)); }

/// Puts as much on disk as `bytes` asks for; whether that suffices.
bool SumPlan::fit(std::vector<SumGroup>& groups, int64_t bytes) const {
  int64_t all = 0, most = 0;
  for (const SumGroup& group : groups) {
    int64_t own = 0;
    for (const auto& ranges : group.ranges)
      for (const GroupRange& range : ranges) own += movable(range) * kEdgeBytes;
    all += own;
    most = std::max(most, own);
  }
  const int64_t excess = bytes_of(groups) - bytes;
  if (excess <= 0) return true;
  if (all <= 2 * most) return false;  // the buffers would take what the disk saves
  double share = static_cast<double>(excess) / static_cast<double>(all - 2 * most);
  for (bool last = false; !last; share += 0.01) {
    last = share >= 1;
    put_on_disk(groups, std::min(share, 1.0));
    if (bytes_of(groups) <= bytes) return true;
  }
  return false;
}

/// An estimate for one sweep.
double SumPlan::seconds(const std::vector<SumGroup>& groups, int threads) const {
  double edges = 0, values = 0, disk = 0;
  for (const SumBin& bin : bins_) edges += static_cast<double>(bin.edges);
  for (const auto& r : relations_)
    values += 8.0 * static_cast<double>(r.edges->columns().size(ColumnKind::kSparse));
  for (const SumGroup& group : groups) disk += static_cast<double>(group.disk_bytes);
  const double reading = static_cast<double>(groups.size()) * values / kBytesPerSecond;
  return std::max((edges * kSecondsPerEdge + reading) / threads, disk / kDiskBytesPerSecond);
}

void SumPlan::cut_groups(int64_t bytes, int threads) {
  std::vector<SumGroup> smallest = grouped(kFewestGroups, false), best;
  if (bytes_of(smallest) > bytes) {
    double least = std::numeric_limits<double>::infinity();
    auto consider = [&](std::vector<SumGroup> groups) {
      const bool fits = fit(groups, bytes);
      if (bytes_of(groups) < bytes_of(smallest)) smallest = groups;
      if (const double time = seconds(groups, threads); fits && time < least) {
        least = time;
        best = std::move(groups);
      }
    };
    for (int64_t parts = kFewestGroups; parts < 4 * limits_.most_pieces; parts += (parts + 3) / 4)
      for (const bool from_disk : {false, true}) consider(grouped(parts, from_disk));
  }
  groups_ = best.empty() ? std::move(smallest) : std::move(best);
  for (const SumGroup& group : groups_)
    for (int64_t p = group.first_piece, place = 0; p < group.end_piece; ++p) {
      SumPiece& piece = pieces_[static_cast<size_t>(p)];
      piece.place = bins_[static_cast<size_t>(piece.bin)].pieces > 1 ? place++ : -1;
    }
}

std::vector<DiskExtent> SumPlan::extents(size_t relation) const {
  std::vector<DiskExtent> found;
  for (const ColumnKind kind : kColumnKinds)
    for (const SumGroup& group : groups_) {
      const GroupRange& range = group.ranges[relation][static_cast<size_t>(kind)];
      if (range.disk_begin < range.disk_end)
        found.push_back({range.disk_begin, range.disk_end, group.disk_offset + range.disk_at * kEdgeBytes});
    }
  return found;
}

}  // namespace tiering
