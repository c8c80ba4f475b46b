#include "out_edge_sums.hpp"

#include <algorithm>
#include <string>
#include <tiering/errors.hpp>
#include <tiering/graph.hpp>
#include <tiering/prefetch.hpp>
#include <utility>

namespace tiering {
namespace {

constexpr int64_t kValuesPerLine = kLineBytes / sizeof(double);
constexpr int64_t kValueBytes = sizeof(double);
constexpr int kIoThreads = 4;
constexpr int64_t kSpareBuffers = 2 * kIoThreads;  ///< being written while others are filled
constexpr int64_t kMostStaged = int64_t{256} << 10;

void check_relation(const ScoreRelation& relation, const std::vector<int64_t>& num_nodes) {
  const size_t types = num_nodes.size();
  TIERING_EXPECT(
      static_cast<size_t>(relation.src_type) < types && static_cast<size_t>(relation.dst_type) < types,
      "a relation names a node type outside 0.." + std::to_string(types) + "-1");
  const int64_t columns = relation.csc.num_columns(),
                expected = num_nodes[static_cast<size_t>(relation.dst_type)];
  TIERING_EXPECT(columns == expected, "a relation has " + std::to_string(columns) +
                                          " columns, its node type has " + std::to_string(expected) +
                                          " nodes");
}

bool readable_past_the_cache(const std::string& file) {
  return !file.empty() && ImageFile(file, DirectMode::automatic).direct();
}

/// From this degree on a column is dense: then a bin uses about every line of such columns' values.
int64_t dense_degree(const ScoreRelation& relation, const BucketGrid& grid, const SumLimits& limits) {
  if (relation.csc.num_columns() <= limits.cached_columns) return 1;
  return std::clamp<int64_t>(grid.num_buckets() / kValuesPerLine, 1, ColumnRanks::kMostDenseDegree);
}

/// Calls f(edges, first, last) for the parts of [first, last) that lie together; edges + position is the edge.
template <typename F>
void for_parts(const GroupRange& range, const EdgeStore& store, const char* from_disk, int64_t first,
               int64_t last, F&& f) {
  if (first < range.disk_begin) f(store.memory(first), first, std::min(last, range.disk_begin));
  const int64_t from = std::max(first, range.disk_begin), to = std::min(last, range.disk_end);
  if (from < to)
    f(reinterpret_cast<const BinnedEdge*>(from_disk) + range.disk_at - range.disk_begin, from, to);
  if (last > range.disk_end) {
    const int64_t rest = std::max(first, range.disk_end);
    f(store.memory(rest), rest, last);
  }
}

}  // namespace

OutEdgeSums::OutEdgeSums(const std::vector<ScoreRelation>& relations, const std::vector<int64_t>& num_nodes,
                         int threads, const ScoreMemory& memory, int64_t own_bytes, const SumLimits& limits)
    : threads_(threads), memory_(memory) {
  for (const auto& r : relations) check_relation(r, num_nodes);
  for (const int64_t n : num_nodes) grids_.push_back(source_bins(n));
  const int chunks = this->chunks(relations, memory.bytes);
  std::vector<PlannedRelation> planned;
  for (size_t i = 0; i < relations.size(); ++i) {
    const ScoreRelation& r = relations[i];
    const BucketGrid& grid = grids_[static_cast<size_t>(r.src_type)];
    DirectFile file = readable_past_the_cache(r.file.path) ? r.file : DirectFile{};
    BinnedEdges edges = about("relation", i, [&] {
      return BinnedEdges(r.csc, file, grid.num_keys, dense_degree(r, grid, limits), chunks, threads,
                         memory.poll);
    });
    relations_.push_back(
        std::make_unique<Relation>(Relation{r.src_type, true, std::move(file), std::move(edges), {}}));
    planned.push_back({r.src_type, &relations_.back()->edges});
  }
  plan_ = std::make_unique<SumPlan>(grids_, std::move(planned), limits);
  for (size_t p = 0; p < plan_->pieces().size(); ++p)
    if (plan_->pieces()[p].index == 0) first_pieces_.push_back(static_cast<int64_t>(p));
  first_pieces_.push_back(static_cast<int64_t>(plan_->pieces().size()));
  // The allocator may keep what the indices were read into.
  const bool from_file =
      std::any_of(relations_.begin(), relations_.end(), [](auto& r) { return !r->file.path.empty(); });
  place(relations, memory.bytes - (from_file ? chunks * kStepMemory : 0), own_bytes);
  take_memory();
}

/// Chunks of the partition: as many as threads, but fewer where their buffers would be small.
int OutEdgeSums::chunks(const std::vector<ScoreRelation>& relations, int64_t bytes) const {
  constexpr int64_t kShare = 8, kStaged = int64_t{16} << 10;
  int64_t most = 1;
  for (const auto& r : relations)
    most = std::max(most, 2 * grids_[static_cast<size_t>(r.src_type)].num_buckets() * kStaged);
  return static_cast<int>(std::clamp<int64_t>(bytes / kShare / most, 1, threads_));
}

/// Bytes that stay, whatever the groups: columns and their values, marks, the threads' sums.
int64_t OutEdgeSums::fixed_bytes() const {
  int64_t bytes = std::max<int64_t>(threads_ * plan_->sum_stride() * kValueBytes, 2 * kHugePageBytes);
  for (const auto& r : relations_) {
    bytes += r->edges.mark_bytes() + r->edges.columns().bytes();
    for (const ColumnKind kind : kColumnKinds) bytes += r->edges.columns().size(kind) * kValueBytes;
  }
  return bytes;
}

/// Decides where the edges lie, and puts them there.
void OutEdgeSums::place(const std::vector<ScoreRelation>& relations, int64_t bytes, int64_t own_bytes) {
  auto align = [&](int64_t alignment) {
    for (auto& r : relations_) r->edges.place_runs(alignment);
  };
  const int64_t room = std::max<int64_t>(0, bytes - fixed_bytes() - own_bytes);
  align(kLineRecords<BinnedEdge>);
  if (plan_->plenty() > room) align(kPageEdges);
  plan_->cut_groups(room, threads_);
  std::unique_ptr<WriteBehind> behind;
  if (plan_->disk_bytes() > 0) {
    scratch_ = std::make_unique<ScratchFile>(memory_.scratch, plan_->disk_bytes());
    behind = stage(bytes);
  }
  for (size_t r = 0; r < relations_.size(); ++r)
    relations_[r]->edges.write(relations[r].csc, relations_[r]->file, plan_->extents(r), behind.get(),
                               memory_.poll);
  if (behind) behind->finish();
}

/// Buffers for what goes to disk, from what is free until the sweeps.
std::unique_ptr<WriteBehind> OutEdgeSums::stage(int64_t bytes) const {
  int64_t runs = 0, lines = 0, free = bytes - plan_->memory_bytes();
  for (const auto& r : relations_) {
    runs = std::max(runs, r->edges.num_runs());
    lines = std::max(lines, r->edges.line_bytes());
    free -= r->edges.mark_bytes() + r->edges.columns().bytes();
  }
  const int64_t buffers = runs + kSpareBuffers,
                each = (free - lines) / buffers / kScratchAlignment * kScratchAlignment;
  return std::make_unique<WriteBehind>(*scratch_, std::clamp(each, kScratchAlignment, kMostStaged), buffers,
                                       kIoThreads);
}

/// Takes the memory of the sweeps.
void OutEdgeSums::take_memory() {
  for (auto& r : relations_)
    for (const ColumnKind kind : kColumnKinds)
      r->values[static_cast<size_t>(kind)] = Buffer<double>(r->edges.columns().size(kind));
  int64_t values = 0, sums = 0, disk = 0;
  for (const SumGroup& group : plan_->groups()) {
    values = std::max(values, group.num_values);
    sums = std::max(sums, group.num_sums);
    disk = std::max(disk, group.disk_bytes);
  }
  unfinished_ = std::vector<std::atomic<int64_t>>(plan_->bins().size());
  expanded_ = Buffer<double>(values);
  piece_sums_ = Buffer<double>(sums > 0 ? (sums + 2) * plan_->sum_stride() : 0);
  // At least so much that the system gives huge pages.
  own_sums_ =
      Buffer<double>(std::max<int64_t>(threads_ * plan_->sum_stride(), 2 * kHugePageBytes / sizeof(double)));
  if (disk == 0) return;
  from_scratch_ = std::make_unique<DoubleBuffer>(scratch_->to_read(), disk);
  request(0);
}

void OutEdgeSums::request(size_t g) {
  const SumGroup& group = plan_->groups()[g];
  from_scratch_->request(group.disk_offset, group.disk_bytes);
}

/// Writes the value of every sparse edge of the group, in the order of the edges.
void OutEdgeSums::expand(const SumGroup& group, const char* from_disk) {
  for (size_t r = 0; r < relations_.size(); ++r) {
    const Relation& relation = *relations_[r];
    const GroupRange& range = group.ranges[r][static_cast<size_t>(ColumnKind::kSparse)];
    if (!relation.active || range.begin == range.end) continue;
    const auto [first_bin, end_bin] = plan_->own_bins(group, r);
    const Buffer<double>& values = relation.values[static_cast<size_t>(ColumnKind::kSparse)];
    double* const out = expanded_.data() + range.value_at;
    for_blocks(threads_, relation.edges.num_blocks(ColumnKind::kSparse), [&](int64_t block) {
      const int64_t first_rank = block * BinnedEdges::kBlockColumns,
                    end_rank = std::min(values.size(), first_rank + BinnedEdges::kBlockColumns);
      const double* const own = values.data() + first_rank;
      for (int64_t rank = first_rank; rank < end_rank; rank += kValuesPerLine)
        __builtin_prefetch(&values[rank], 0, 2);  // 2: L2
      auto write = [&](const BinnedEdge* edges, int64_t first, int64_t last) {
        auto ahead = [&](int64_t k) { prefetch_stream(edges + k); };
        for_stream(first, last, ahead, [&](int64_t k) { out[k] = own[BinnedEdges::rank(edges[k])]; });
      };
      relation.edges.visit_bins(ColumnKind::kSparse, block, first_bin, end_bin,
                                [&](int64_t first, int64_t last) {
                                  first = std::max(first, range.begin);
                                  last = std::min(last, range.end);
                                  if (first < last)
                                    for_parts(range, relation.edges.store(), from_disk, first, last, write);
                                });
    });
  }
}

/// Adds the values of the piece's edges.
void OutEdgeSums::gather(const SumGroup& group, const SumPiece& piece, const char* from_disk,
                         double* sums) const {
  const SumBin& bin = plan_->bins()[static_cast<size_t>(piece.bin)];
  int64_t passed = 0;
  auto part = [&](int64_t size) {  // which of the next `size` edges of the bin are the piece's
    const int64_t before = std::exchange(passed, passed + size);
    return std::pair(std::clamp<int64_t>(piece.from - before, 0, size),
                     std::clamp<int64_t>(piece.to - before, 0, size));
  };
  for (size_t r = 0; r < relations_.size(); ++r) {
    const Relation& relation = *relations_[r];
    if (relation.src_type != bin.type) continue;
    const auto dense = part(relation.edges.size(ColumnKind::kDense, bin.index));
    const auto sparse = part(relation.edges.size(ColumnKind::kSparse, bin.index));
    if (!relation.active) continue;
    add_dense(relation, group.ranges[r][0], bin.index, dense, from_disk, sums);
    add_sparse(relation, group.ranges[r][1], bin.index, sparse, from_disk, sums);
  }
}

/// Adds edges [part.first, part.second) of the dense columns: their values are read where they stand.
void OutEdgeSums::add_dense(const Relation& relation, const GroupRange& range, int64_t bin,
                            std::pair<int64_t, int64_t> part, const char* from_disk, double* sums) const {
  const Buffer<double>& all = relation.values[static_cast<size_t>(ColumnKind::kDense)];
  relation.edges.visit_blocks(
      ColumnKind::kDense, bin, part.first, part.second, [&](int64_t first_rank, int64_t begin, int64_t end) {
        const double* const values = all.data() + first_rank;
        auto add = [&](const BinnedEdge* edges, int64_t first, int64_t last) {
          auto ahead = [&](int64_t k) { prefetch_stream(edges + k); };
          for_stream(first, last, ahead, [&](int64_t k) {
            sums[BinnedEdges::source(edges[k])] += values[BinnedEdges::rank(edges[k])];
          });
        };
        for_parts(range, relation.edges.store(), from_disk, begin, end, add);
      });
}

/// The same of the sparse columns: their values were expanded.
void OutEdgeSums::add_sparse(const Relation& relation, const GroupRange& range, int64_t bin,
                             std::pair<int64_t, int64_t> part, const char* from_disk, double* sums) const {
  const double* const values = expanded_.data() + range.value_at;
  auto add = [&](const BinnedEdge* edges, int64_t first, int64_t last) {
    auto ahead = [&](int64_t k) {
      prefetch_stream(edges + k);
      prefetch_stream(values + k);
    };
    for_stream(first, last, ahead, [&](int64_t k) { sums[BinnedEdges::source(edges[k])] += values[k]; });
  };
  relation.edges.visit_runs(ColumnKind::kSparse, bin, part.first, part.second,
                            [&](int64_t begin, int64_t end) {
                              for_parts(range, relation.edges.store(), from_disk, begin, end, add);
                            });
}

/// Hands the sums of a bin to the caller.
void OutEdgeSums::hand_over(int64_t index, double* sums, const Use& use) const {
  const SumBin& bin = plan_->bins()[static_cast<size_t>(index)];
  const BucketGrid& grid = grids_[static_cast<size_t>(bin.type)];
  const int64_t first = grid.first_key(bin.index), size = grid.end_key(bin.index) - first;
  use(index, {bin.type, first, {sums, static_cast<size_t>(size)}});
}

/// Adds up the pieces of a bin that are in group g, in order, behind those of the groups before; the last group of
/// the bin hands its sums over, the others keep them for the next.
void OutEdgeSums::finish_pieces(size_t g, int64_t bin, const Use& use) {
  const SumGroup& group = plan_->groups()[g];
  const int64_t first = first_pieces_[static_cast<size_t>(bin)],
                end = first_pieces_[static_cast<size_t>(bin) + 1], stride = plan_->sum_stride();
  int64_t p = std::max(first, group.first_piece);
  auto sums_of = [&](int64_t piece) {
    return piece_sums_.data() + (2 + plan_->pieces()[static_cast<size_t>(piece)].place) * stride;
  };
  double *const before = piece_sums_.data() + static_cast<int64_t>((g + 1) % 2) * stride,
                *const kept = piece_sums_.data() + static_cast<int64_t>(g % 2) * stride;
  double* const sums = p > first ? before : sums_of(p++);
  for (; p < std::min(end, group.end_piece); ++p)
    for (int64_t i = 0; i < stride; ++i) sums[i] += sums_of(p)[i];
  if (end <= group.end_piece)
    hand_over(bin, sums, use);
  else
    std::copy_n(sums, stride, kept);
}

/// Sums a piece. Whoever ends the last piece of a bin in the group finishes the bin.
void OutEdgeSums::sum_piece(size_t g, const SumPiece& piece, const char* from_disk, double* own,
                            const Use& use) {
  const bool single = plan_->bins()[static_cast<size_t>(piece.bin)].pieces == 1;
  double* const sums = single ? own : piece_sums_.data() + (2 + piece.place) * plan_->sum_stride();
  std::fill_n(sums, plan_->sum_stride(), 0.0);
  gather(plan_->groups()[g], piece, from_disk, sums);
  if (single)
    hand_over(piece.bin, sums, use);
  else if (unfinished_[static_cast<size_t>(piece.bin)].fetch_sub(1, std::memory_order_acq_rel) == 1)
    finish_pieces(g, piece.bin, use);
}

void OutEdgeSums::sum_group(size_t g, const char* from_disk, const Use& use) {
  const SumGroup& group = plan_->groups()[g];
  const auto& pieces = plan_->pieces();
  for (int64_t p = group.first_piece; p < group.end_piece; ++p)
    unfinished_[static_cast<size_t>(pieces[static_cast<size_t>(p)].bin)] = 0;
  for (int64_t p = group.first_piece; p < group.end_piece; ++p)
    ++unfinished_[static_cast<size_t>(pieces[static_cast<size_t>(p)].bin)];
  expand(group, from_disk);
  std::atomic<int64_t> next{group.first_piece};
  run_team(threads_, [&](int t) {
    double* const own = own_sums_.data() + t * plan_->sum_stride();
    for (int64_t i = next++; i < group.end_piece; i = next++)
      sum_piece(g, pieces[static_cast<size_t>(i)], from_disk, own, use);
  });
}

void OutEdgeSums::sweep(const Use& use) {
  const size_t groups = plan_->groups().size();
  for (size_t g = 0; g < groups; ++g) {
    memory_.poll();
    const char* from_disk = nullptr;
    if (from_scratch_) {
      from_disk = from_scratch_->take();
      request((g + 1) % groups);  // behind the last group, the first of the next sweep
    }
    sum_group(g, from_disk, use);
  }
}

}  // namespace tiering
