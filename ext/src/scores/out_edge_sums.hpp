// Sums over out-edges from the CSC alone, by propagation blocking (Beamer, Asanovic, Patterson, IPDPS'17): for every
// node u the sum over relations r, over edges u -> v of r, of x_r(v). The edges are put in bins by source once
// (binned_edges.hpp); a sweep streams each bin. Columns of high degree are read where they stand: a bin uses about each
// of their cache lines. The x_r of the others is first expanded, one value per edge, while a block of it stays in the
// private cache. Bins that do not fit the memory are spilled, whole, to a scratch file and read again in each sweep,
// while those before are summed. A bin is summed in float64: relations in list order, columns of high degree first,
// each ascending; one of many edges in pieces cut by the graph alone, added in order: same bytes for any number of
// threads and any memory. Memory: RelationShape::kept_bytes, 4 bytes per edge that is not spilled, 16 for each edge of
// a group, 512 KiB per thread.
#pragma once

#include "sum_plan.hpp"

namespace tiering {

/// The sums of consecutive nodes: first, first + 1, ... of a node type.
struct SumRange {
  int type;
  int64_t first;
  std::span<const double> sums;
};

/// The edges of all relations, ordered once for many sweeps.
class OutEdgeSums {
 public:
  using Use = std::function<void(int64_t, const SumRange&)>;

  /// Checks the relations (types, shapes, indptr, indices), then bins their edges. `own_bytes` of the memory are
  /// the caller's: it takes them later, so that they are free while the edges are binned.
  OutEdgeSums(const std::vector<ScoreRelation>& relations, const std::vector<int64_t>& num_nodes, int threads,
              const ScoreMemory& memory = {}, int64_t own_bytes = 0, const SumLimits& limits = {})
      : threads_(threads), memory_(memory) {
    for (const auto& r : relations) check(r, num_nodes);
    for (const int64_t n : num_nodes) grids_.push_back(source_bins(n));
    chunks_ = chunks(relations, memory.bytes);
    std::vector<SumPlan::Relation> planned;
    for (size_t i = 0; i < relations.size(); ++i) {
      const ScoreRelation& r = relations[i];
      const BucketGrid& grid = grids_[r.src_type];
      const int64_t high = high_degree(r.csc.num_columns(), grid.num_buckets(), limits);
      const bool direct = !r.file.path.empty() && ImageFile(r.file.path, DirectMode::automatic).direct();
      DirectFile file = direct ? r.file : DirectFile{};
      BinnedEdges edges = about_relation(
          i, [&] { return BinnedEdges(r.csc, file, grid.num_keys, high, chunks_, threads, memory.poll); });
      relations_.push_back(
          std::make_unique<Relation>(Relation{r.src_type, true, std::move(file), std::move(edges), {}}));
      planned.push_back({r.src_type, &relations_.back()->edges});
    }
    plan_ = std::make_unique<SumPlan>(grids_, std::move(planned), chunks_, limits);
    // The allocator may keep what the indices were read into.
    const bool from_file =
        std::any_of(relations_.begin(), relations_.end(), [](auto& r) { return !r->file.path.empty(); });
    const int64_t bytes = memory.bytes - (from_file ? chunks_ * kStepMemory : 0) - kept_bytes(relations);
    plan_->fit(std::max<int64_t>(0, bytes - own_bytes));
    write_edges(relations, bytes);
    take_memory();
  }

  /// Sets x of a relation, its contributions, to f(v, degree), called once for every column v that has edges, from all
  /// threads.
  template <typename F>
  void contribute(size_t relation, F&& f) {
    for (const ColumnKind kind : kColumnKinds) {
      double* const values = relations_[relation]->values[kind].data();
      relations_[relation]->edges.columns().for_each(
          kind, threads_, [&](int64_t v, int64_t rank, int64_t degree) { values[rank] = f(v, degree); });
    }
  }

  /// Says whether a relation takes part in the sweeps from now on; at first all do.
  void set_active(size_t relation, bool active) { relations_[relation]->active = active; }

  int64_t num_ranges() const { return static_cast<int64_t>(plan_->bins().size()); }

  const SumPlan& plan() const { return *plan_; }

  /// One sweep: calls use(i, range) once for every range i, in any order and from all threads. Every node is
  /// in one range; the ranges depend on the graph alone.
  void sweep(const Use& use) {
    const size_t groups = plan_->groups().size();
    turn_ = 0;
    for (size_t g = 0; g < groups; ++g) {
      memory_.poll();
      const std::byte* from_scratch = nullptr;
      if (from_scratch_) {
        from_scratch = from_scratch_->take();
        request((g + 1) % groups);  // behind the last group, the first of the next sweep
      }
      sum_group(plan_->groups()[g], from_scratch, use);
    }
  }

 private:
  static constexpr int64_t kValuesPerLine = kLineBytes / sizeof(double), kMaxStaged = int64_t{256} << 10;
  static constexpr int kIoThreads = 4;
  static constexpr int64_t kSpareBuffers = 2 * kIoThreads;  ///< being written while others are filled

  struct Relation {
    int src_type;
    bool active;
    DirectFile file;  ///< of the indices, to be read past the page cache; empty: they are read as they are mapped
    BinnedEdges edges;
    std::array<Buffer<double>, 2> values;  ///< per kind of columns, by rank: x
  };

  /// The memory that a group is summed from; positions of edges and values count from these addresses.
  struct Sources {
    const BinnedEdge *resident, *spilled;
    double* expanded;
  };

  static void check(const ScoreRelation& relation, const std::vector<int64_t>& num_nodes) {
    const size_t types = num_nodes.size();
    TIERING_EXPECT(static_cast<size_t>(relation.src_type) < types && static_cast<size_t>(relation.dst_type) < types,
                   "a relation names a node type outside 0..", types, "-1");
    const int64_t columns = relation.csc.num_columns(), expected = num_nodes[relation.dst_type];
    TIERING_EXPECT(columns == expected, "a relation has ", columns, " columns, its node type has ", expected, " nodes");
  }

  /// Calls body(k) for the places [first, last) of arrays that are streamed.
  template <typename Body, typename... Array>
  static void stream(int64_t first, int64_t last, Body&& body, const Array*... arrays) {
    for_stream(first, last, [=](int64_t k) { (prefetch_stream(arrays + k), ...); }, body);
  }

  /// Chunks of the partition: as many as threads, but fewer where their buffers would be small.
  int chunks(const std::vector<ScoreRelation>& relations, int64_t bytes) const {
    constexpr int64_t kShare = 8, kStaged = int64_t{16} << 10;
    int64_t most = 1;
    for (const auto& r : relations) most = std::max(most, 2 * grids_[r.src_type].num_buckets() * kStaged);
    return static_cast<int>(std::clamp<int64_t>(bytes / kShare / most, 1, threads_));
  }

  /// Bytes that stay, whatever is spilled: columns and their values, starts of blocks, sums.
  int64_t kept_bytes(const std::vector<ScoreRelation>& relations) const {
    int64_t bytes = sum_bytes(threads_, plan_->sum_stride());
    for (size_t r = 0; r < relations.size(); ++r) {
      const BinnedEdges& edges = relations_[r]->edges;
      const RelationShape shape{relations[r].csc.num_columns(),         edges.num_bins(),
                                relations[r].csc.num_edges(),           edges.columns().size(ColumnKind::kHigh),
                                edges.columns().size(ColumnKind::kLow), 0};
      bytes += shape.kept_bytes(chunks_);
    }
    return bytes;
  }

  /// Puts the edges where the plan wants them, with `bytes` for them and for buffers.
  void write_edges(const std::vector<ScoreRelation>& relations, int64_t bytes) {
    resident_ = Buffer<BinnedEdge>(plan_->num_resident());
    std::unique_ptr<WriteBehind> behind;
    if (plan_->num_spilled() > 0) {
      scratch_ = std::make_unique<ScratchFile>(memory_.scratch, plan_->num_spilled() * kEdgeBytes);
      behind = stage(bytes - plan_->num_resident() * kEdgeBytes);
    }
    for (size_t r = 0; r < relations_.size(); ++r)
      relations_[r]->edges.write(relations[r].csc, relations_[r]->file,
                                 {resident_.data(), behind.get(), plan_->spilled_buckets(r)}, memory_.poll);
    if (behind) behind->finish();
  }

  /// Buffers for what is spilled, from what is free until the sweeps: one for each bin, kind and chunk, and some more.
  std::unique_ptr<WriteBehind> stage(int64_t bytes) const {
    int64_t bins = 0;
    for (const auto& r : relations_) bins = std::max(bins, 2 * r->edges.num_bins());
    const int64_t buffers = bins * chunks_ + kSpareBuffers, size = (bytes - bins * chunks_ * BinnedEdges::kLineBuffer) /
                                                                   buffers / kScratchAlignment * kScratchAlignment;
    return std::make_unique<WriteBehind>(*scratch_, std::clamp(size, kScratchAlignment, kMaxStaged), buffers,
                                         kIoThreads);
  }

  /// Takes the memory of the sweeps.
  void take_memory() {
    for (auto& r : relations_)
      for (const ColumnKind kind : kColumnKinds) r->values[kind] = Buffer<double>(r->edges.columns().size(kind));
    int64_t values = 0, spilled = 0;
    for (const SumGroup& group : plan_->groups()) {
      values = std::max(values, group.values.size());
      spilled = std::max(spilled, group.spilled.size());
    }
    expanded_ = Buffer<double>(values);
    // At least so much that the system gives huge pages.
    own_sums_ = Buffer<double>(std::max<int64_t>(threads_ * plan_->sum_stride(), 2 * kHugePageBytes / sizeof(double)));
    pieces_sum_ = Buffer<double>(plan_->sum_stride());
    if (spilled == 0) return;
    from_scratch_ = std::make_unique<DoubleBuffer>(scratch_->to_read(), spilled * kEdgeBytes);
    request(0);
  }

  void request(size_t g) {
    const Places& spilled = plan_->groups()[g].spilled;
    from_scratch_->request(spilled.first * kEdgeBytes, spilled.size() * kEdgeBytes);
  }

  void sum_group(const SumGroup& group, const std::byte* from_scratch, const Use& use) {
    const Sources sources{resident_.data(), reinterpret_cast<const BinnedEdge*>(from_scratch) - group.spilled.first,
                          expanded_.data() - group.values.first};
    for (size_t r = 0; r < relations_.size(); ++r)
      if (relations_[r]->active) expand(group, r, sources);
    for_blocks(threads_, group.end_piece - group.first_piece, [&](int64_t i, int t) {
      double* const own = own_sums_.data() + t * plan_->sum_stride();
      sum_piece(plan_->pieces()[group.first_piece + i], sources, own, use);
    });
  }

  /// Writes the value of every edge of low degree of the group and relation, in the order of the edges.
  [[gnu::noinline]] void expand(const SumGroup& group, size_t r, const Sources& sources) {
    const Relation& relation = *relations_[r];
    const auto [first_bin, end_bin] = plan_->own_bins(group, r);
    if (first_bin == end_bin) return;
    const Buffer<double>& values = relation.values[ColumnKind::kLow];
    for_blocks(threads_, relation.edges.num_blocks(ColumnKind::kLow), [&](int64_t block) {
      const int64_t first_rank = block * BinnedEdges::kBlockColumns,
                    end_rank = std::min(values.size(), first_rank + BinnedEdges::kBlockColumns);
      const double* const own = values.data() + first_rank;
      for (int64_t rank = first_rank; rank < end_rank; rank += kValuesPerLine)
        __builtin_prefetch(&values[rank], 0, 2);  // 2: L2
      relation.edges.visit_bins(
          ColumnKind::kLow, block, first_bin, end_bin, [&](int64_t bin, int64_t first, int64_t last) {
            const int64_t shift =
                plan_->value_shift(r, bin);  // of a bin that other groups share, not all is this one's
            first = std::max(first, group.values.first - shift);
            last = std::min(last, group.values.end - shift);
            const BinnedEdge* const edges = plan_->own_bin(r, bin).spilled ? sources.spilled : sources.resident;
            double* const out = sources.expanded + shift;
            stream(first, last, [=](int64_t k) { out[k] = own[BinnedEdges::rank(edges[k])]; }, edges);
          });
    });
  }

  /// Adds the values of the piece's edges.
  [[gnu::noinline]] void gather(const SumPiece& piece, const Sources& sources, double* sums) const {
    const SumBin& bin = plan_->bins()[piece.bin];
    const BinnedEdge* const edges = bin.spilled ? sources.spilled : sources.resident;
    plan_->visit_parts(piece, [&](size_t r, ColumnKind kind, int64_t from, int64_t to) {
      const Relation& relation = *relations_[r];
      if (!relation.active) return;
      if (kind == ColumnKind::kLow) {  // their values were expanded
        const double* const values = sources.expanded + plan_->value_shift(r, bin.index);
        relation.edges.visit_runs(kind, bin.index, from, to, [&](int64_t first, int64_t last) {
          stream(first, last, [=](int64_t k) { sums[BinnedEdges::source(edges[k])] += values[k]; }, edges, values);
        });
        return;
      }
      relation.edges.visit_blocks(kind, bin.index, from, to, [&](int64_t first_rank, int64_t first, int64_t last) {
        add_values(edges, first, last, relation.values[kind].data() + first_rank, sums);
      });
    });
  }

  /// Sums a piece. Those of a bin that has several are added up in order: a thread waits for its turn, which comes, as
  /// pieces are taken in order.
  [[gnu::noinline]] void sum_piece(const SumPiece& piece, const Sources& sources, double* own, const Use& use) {
    const int64_t stride = plan_->sum_stride(), pieces = plan_->bins()[piece.bin].pieces;
    std::fill_n(own, stride, 0.0);
    gather(piece, sources, own);
    if (pieces == 1) {
      hand_over(piece.bin, own, use);
      return;
    }
    for (int64_t now = turn_; now != piece.turn; now = turn_) turn_.wait(now);
    if (piece.index == 0)
      std::copy_n(own, stride, pieces_sum_.data());
    else
      for (int64_t i = 0; i < stride; ++i) pieces_sum_[i] += own[i];
    if (piece.index + 1 == pieces) hand_over(piece.bin, pieces_sum_.data(), use);
    ++turn_;
    turn_.notify_all();
  }

  /// Hands the sums of a bin to the caller.
  void hand_over(int64_t index, double* sums, const Use& use) const {
    const SumBin& bin = plan_->bins()[index];
    const BucketGrid& grid = grids_[bin.type];
    const int64_t first = grid.first_key(bin.index), size = grid.end_key(bin.index) - first;
    use(index, {bin.type, first, {sums, static_cast<size_t>(size)}});
  }

  int threads_, chunks_;
  ScoreMemory memory_;
  std::vector<BucketGrid> grids_;                     ///< per type
  std::vector<std::unique_ptr<Relation>> relations_;  ///< the plan points to their edges
  std::unique_ptr<SumPlan> plan_;
  Buffer<BinnedEdge> resident_;
  Buffer<double> own_sums_;        ///< per thread: the piece at hand
  Buffer<double> pieces_sum_;      ///< of the pieces so far of a bin that has several
  std::atomic<int64_t> turn_ = 0;  ///< the piece that may be added to it next
  Buffer<double> expanded_;        ///< values of a group's edges of low degree
  std::unique_ptr<ScratchFile> scratch_;
  std::unique_ptr<DoubleBuffer> from_scratch_;  ///< the group that is summed next is under way
};

}  // namespace tiering
