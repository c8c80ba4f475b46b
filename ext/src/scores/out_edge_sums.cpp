#include "out_edge_sums.hpp"

#include <cstdlib>
#include <string>
#include <tiering/errors.hpp>
#include <tiering/graph.hpp>
#include <tiering/prefetch.hpp>
#include <utility>

namespace tiering {
namespace {

constexpr int64_t kSources = int64_t{1} << BinnedEdges::kHalfBits;  ///< at most, of a bin

/// A piece has at least kLeastPiece edges, and there are at most about kMostPieces of them.
constexpr int64_t kLeastPiece = int64_t{1} << 20, kMostPieces = 256;
constexpr int64_t kGroups = 4, kLeastGroup = int64_t{1} << 20;

void check_relation(const ScoreRelation& relation, const std::vector<int64_t>& num_nodes, int threads) {
  const size_t types = num_nodes.size();
  TIERING_EXPECT(
      static_cast<size_t>(relation.src_type) < types && static_cast<size_t>(relation.dst_type) < types,
      "a relation names a node type outside 0.." + std::to_string(types) + "-1");
  const int64_t columns = relation.csc.num_columns(),
                expected = num_nodes[static_cast<size_t>(relation.dst_type)];
  TIERING_EXPECT(columns == expected, "a relation has " + std::to_string(columns) +
                                          " columns, its node type has " + std::to_string(expected) +
                                          " nodes");
  check_indptr(relation.csc, threads);
}

}  // namespace

OutEdgeSums::OutEdgeSums(const std::vector<ScoreRelation>& relations, std::vector<int64_t> num_nodes,
                         int threads)
    : num_nodes_(std::move(num_nodes)), threads_(threads) {
  for (const auto& r : relations) check_relation(r, num_nodes_, threads);
  for (const auto& r : relations) {
    BinnedEdges edges(r.csc, num_nodes_[static_cast<size_t>(r.src_type)], threads);
    auto values = [&](ColumnKind kind) {
      return Buffer<double>(static_cast<int64_t>(edges.columns(kind).size()));
    };
    std::array buffers{values(ColumnKind::kDense), values(ColumnKind::kSparse)};
    relations_.push_back({r.src_type, true, std::move(edges), std::move(buffers)});
  }
  plan_tasks();
  plan_groups();
}

/// Lists the bins, and cuts those of many edges into pieces.
void OutEdgeSums::plan_tasks() {
  int64_t all_edges = 0;
  std::vector<int64_t> edges;
  for (size_t t = 0; t < num_nodes_.size(); ++t)
    for (int64_t b = 0; b < source_bins(num_nodes_[t]).num_buckets(); ++b) {
      int64_t dense = 0, sparse = 0;
      for (const auto& r : relations_)
        if (r.src_type == static_cast<int>(t)) {
          dense += r.edges.size(ColumnKind::kDense, b);
          sparse += r.edges.size(ColumnKind::kSparse, b);
        }
      bins_.push_back({static_cast<int>(t), b, sparse, 1, -1});
      edges.push_back(dense + sparse);
      all_edges += dense + sparse;
    }
  const int64_t piece = std::max(kLeastPiece, all_edges / kMostPieces);
  for (size_t i = 0; i < bins_.size(); ++i) {
    const auto bin = static_cast<int64_t>(i);
    const int64_t pieces = std::max<int64_t>(1, (edges[i] + piece - 1) / piece);
    bins_[i].pieces = pieces;
    for (int64_t p = 0; p < pieces; ++p) {
      const auto [from, to] = even_cut(edges[i], static_cast<int>(pieces), static_cast<int>(p));
      tasks_.push_back({bin, p, from, to});
    }
  }
  unfinished_ = std::vector<std::atomic<int64_t>>(bins_.size());
}

void OutEdgeSums::plan_groups() {
  int64_t all_sparse = 0, most_values = 0, most_places = 0;
  for (const auto& bin : bins_) all_sparse += bin.sparse_edges;
  const int64_t wanted =
      std::max(kLeastGroup, all_sparse / (getenv("GROUPS") ? atoi(getenv("GROUPS")) : kGroups) + 1);
  size_t task = 0;
  for (size_t i = 0; i < bins_.size();) {
    Group group{static_cast<int64_t>(i), 0, task, 0, {}, {}, {}};
    int64_t sparse = 0, places = 0;
    for (; i < bins_.size() && (sparse == 0 || sparse + bins_[i].sparse_edges <= wanted); ++i) {
      sparse += bins_[i].sparse_edges;
      task += static_cast<size_t>(bins_[i].pieces);
      if (bins_[i].pieces == 1) continue;
      bins_[i].first_place = places;
      places += bins_[i].pieces;
    }
    group.end_bin = static_cast<int64_t>(i);
    group.end_task = task;
    int64_t values = 0;
    for (const auto& r : relations_) {
      int64_t first = 0, end = 0;
      for (int64_t b = group.first_bin; b < group.end_bin; ++b)
        if (bins_[static_cast<size_t>(b)].type == r.src_type) {
          if (end == 0) first = bins_[static_cast<size_t>(b)].index;
          end = bins_[static_cast<size_t>(b)].index + 1;
        }
      group.first_bins.push_back(first);
      group.end_bins.push_back(end);
      const int64_t begin = r.edges.first_position(ColumnKind::kSparse, first);
      group.offsets.push_back(values - begin);
      values += r.edges.first_position(ColumnKind::kSparse, end) - begin;
    }
    most_values = std::max(most_values, values);
    most_places = std::max(most_places, places);
    groups_.push_back(std::move(group));
  }
  own_ = Buffer<double>(std::max<int64_t>(threads_ * kSources, 1 << 19));
  expanded_ = Buffer<double>(most_values);
  pieces_ = Buffer<double>(most_places * kSources);
}

int64_t OutEdgeSums::largest_task() const {
  int64_t largest = 0;
  for (const auto& task : tasks_) largest = std::max(largest, task.to - task.from);
  return largest;
}

/// Writes the value of every sparse edge of the group, in the order of the edges.
void OutEdgeSums::expand(const Group& group) {
  for (size_t r = 0; r < relations_.size(); ++r) {
    const auto& relation = relations_[r];
    if (!relation.active || group.first_bins[r] == group.end_bins[r]) continue;
    const BinnedEdges::Edge* const edges = relation.edges.edges();
    double* const out = expanded_.data() + group.offsets[r];
    for_blocks(threads_, relation.edges.num_blocks(ColumnKind::kSparse), [&](int64_t block) {
      const double* const values = relation.values[1].data() + (block << BinnedEdges::kHalfBits);
      relation.edges.visit_bins(ColumnKind::kSparse, block, group.first_bins[r], group.end_bins[r],
                                [&](int64_t first, int64_t last) {
                                  for (int64_t k = first; k < last; ++k) {
                                    prefetch_stream(edges + k);
                                    out[k] = values[edges[k] >> BinnedEdges::kHalfBits];
                                  }
                                });
    });
  }
}

/// Adds the values of the task's edges.
void OutEdgeSums::gather(const Group& group, const Task& task, double* sums) const {
  const Bin& bin = bins_[static_cast<size_t>(task.bin)];
  int64_t passed = 0;
  auto part = [&](int64_t size) {  // which of the next `size` edges of the bin are the task's
    const int64_t before = std::exchange(passed, passed + size);
    return std::pair(std::clamp<int64_t>(task.from - before, 0, size),
                     std::clamp<int64_t>(task.to - before, 0, size));
  };
  for (size_t r = 0; r < relations_.size(); ++r) {
    const auto& relation = relations_[r];
    if (relation.src_type != bin.type) continue;
    const auto dense = part(relation.edges.size(ColumnKind::kDense, bin.index));
    const auto sparse = part(relation.edges.size(ColumnKind::kSparse, bin.index));
    if (!relation.active) continue;
    const BinnedEdges::Edge* const edges = relation.edges.edges();
    relation.edges.visit_blocks(ColumnKind::kDense, bin.index, dense.first, dense.second,
                                [&](int64_t first_rank, int64_t first, int64_t last) {
                                  const double* const values = relation.values[0].data() + first_rank;
                                  for (int64_t k = first; k < last; ++k)
                                    sums[edges[k] & BinnedEdges::kSourceMask] +=
                                        values[edges[k] >> BinnedEdges::kHalfBits];
                                });
    const double* const values = expanded_.data() + group.offsets[r];
    relation.edges.visit_runs(ColumnKind::kSparse, bin.index, sparse.first, sparse.second,
                              [&](int64_t first, int64_t last) {
                                for (int64_t k = first; k < last; ++k)
                                  sums[edges[k] & BinnedEdges::kSourceMask] += values[k];
                              });
  }
}

void OutEdgeSums::finish_bin(int64_t index, double* sums, const Use& use) const {
  const Bin& bin = bins_[static_cast<size_t>(index)];
  const int64_t first = grid(bin).first_key(bin.index), size = grid(bin).end_key(bin.index) - first;
  for (int64_t p = 1; p < bin.pieces; ++p)
    for (int64_t i = 0; i < size; ++i) sums[i] += sums[p * kSources + i];
  use(index, {bin.type, first, {sums, static_cast<size_t>(size)}});
}

/// Sums one task; whoever ends the last piece of a bin adds them up.
void OutEdgeSums::run_task(const Group& group, const Task& task, double* own, const Use& use) {
  const Bin& bin = bins_[static_cast<size_t>(task.bin)];
  double* first = bin.pieces == 1 ? own : pieces_.data() + bin.first_place * kSources;
  double* sums = first + task.piece * kSources;
  std::fill_n(sums, int64_t{1} << grid(bin).shift, 0.0);
  gather(group, task, sums);
  if (unfinished_[static_cast<size_t>(task.bin)].fetch_sub(1, std::memory_order_acq_rel) == 1)
    finish_bin(task.bin, first, use);
}

void OutEdgeSums::sweep(const Use& use) {
  for (size_t b = 0; b < bins_.size(); ++b) unfinished_[b] = bins_[b].pieces;
  for (const auto& group : groups_) {
    expand(group);
    const auto first = static_cast<int64_t>(group.first_task), end = static_cast<int64_t>(group.end_task);
    std::atomic<int64_t> next{first};
    run_team(threads_, [&](int t) {
      for (int64_t i = next++; i < end; i = next++)
        run_task(group, tasks_[static_cast<size_t>(i)], own_.data() + t * kSources, use);
    });
  }
}

}  // namespace tiering
