// Reverse PageRank from the CSC alone, by propagation blocking.
//
// Returns:    new[t](u) = teleport[t](u) + damping * sum over relations r from type t, over edges u -> v
//             of r, of s(v) / indeg_r(v); repeated max_sweeps times or until the L1 change is at most
//             `tolerance`.
// Approach:   the score flows against the edges, so a column of the CSC *scatters*. Once, the edges of
//             each relation are partitioned by source into bins whose accumulators fit the private cache
//             (partition.hpp). A sweep then streams each bin: accumulate[u] += share[v], where share[v] =
//             s(v) / indeg(v) is computed once per node and v ascends within the bin. Columns come in
//             blocks, so that an edge is 16 bits of u and 16 bits of v.
// Why:        building a CSR costs as much as five sweeps; pushing with atomics costs more and is not
//             reproducible.
// Memory:     4 bytes per edge, 16 per node and relation.
// Parallelism and determinism: a bin has one owner; its sums run in float64, relations in list
//             order, contributors in ascending id. The L1 change is summed bin by bin. Same bytes for any
//             number of threads.
// Source:     Beamer, Asanovic, Patterson, "Reducing PageRank communication via propagation blocking"
//             (IPDPS'17).
#include <algorithm>
#include <cmath>
#include <string>
#include <tiering/errors.hpp>
#include <tiering/graph.hpp>
#include <tiering/parallel.hpp>
#include <tiering/partition.hpp>
#include <tiering/scan_columns.hpp>
#include <tiering/scores.hpp>
#include <vector>

namespace tiering {
namespace {

// A bin has at most 2^16 sources, a block 2^16 columns: an edge is then 32 bits, and the accumulators of a bin
// and the shares of a block (512 KiB each) are in the private cache together.
constexpr int kSourceBits = 16, kColumnBits = 16;
constexpr uint32_t kSourceMask = (uint32_t{1} << kSourceBits) - 1,
                   kColumnMask = (uint32_t{1} << kColumnBits) - 1;
constexpr int64_t kWantedBins = 64;

BucketGrid bin_grid(int64_t num_nodes) { return choose_grid(num_nodes, kWantedBins, kSourceBits, num_nodes); }

/// An edge as a bin keeps it: source within the bin in the low half, column within the block in the high half.
using BinRecord = uint32_t;

/// Where the records of one block of columns begin in each bin, for one chunk of the edges.
struct BlockMarks {
  int64_t block;
  std::vector<int64_t> begins;  ///< per bin, position among all records
};

/// The edges of one relation in bins by source, and what its columns hand out in a sweep.
struct BinnedRelation {
  PagerankRelation view;
  Partition<BinRecord> bins;
  std::vector<std::vector<BlockMarks>> marks;  ///< per chunk: blocks ascending, then the end
  Buffer<double> shares;                       ///< per column: s(v) / indeg(v)
};

/// Sends the entries [begin, end) of the CSC to their bins, noting where each block of columns begins.
template <typename Index, typename Writer>
std::vector<BlockMarks> bin_entries(const CscView& csc, std::span<const Index> indices, uint32_t source_mask,
                                    int64_t begin, int64_t end, Writer& writer) {
  std::vector<BlockMarks> marks;
  auto mark = [&](int64_t block) {
    const auto cursors = writer.cursors();
    marks.push_back({block, {cursors.begin(), cursors.end()}});
  };
  scan_columns(csc.indptr, begin, end, [&](int64_t column, int64_t first, int64_t last) {
    if (marks.empty() || marks.back().block != column >> kColumnBits) mark(column >> kColumnBits);
    const uint32_t contributor = (static_cast<uint32_t>(column) & kColumnMask) << kSourceBits;
    for (auto k = static_cast<size_t>(first); k < static_cast<size_t>(last); ++k)
      writer.put(indices[k], (static_cast<uint32_t>(indices[k]) & source_mask) | contributor);
  });
  mark(-1);
  return marks;
}

BinnedRelation bin_relation(const PagerankRelation& relation, int64_t num_src, int threads) {
  const CscView& csc = relation.csc;
  const BucketGrid grid = bin_grid(num_src);
  const uint32_t source_mask = (uint32_t{1} << grid.shift) - 1;
  std::vector<std::vector<BlockMarks>> marks(static_cast<size_t>(threads));
  return csc.indices.visit([&](const auto& indices) {
    auto sources = [&](int64_t begin, int64_t end, auto&& f) {
      scan_indices(indices, num_src, begin, end, f);
    };
    auto records = [&](int chunk, int64_t begin, int64_t end, auto& writer) {
      marks[static_cast<size_t>(chunk)] = bin_entries(csc, indices, source_mask, begin, end, writer);
    };
    auto bins = partition_by_key<BinRecord>(csc.num_edges(), grid, threads, sources, records);
    return BinnedRelation{relation, std::move(bins), std::move(marks), Buffer<double>(csc.num_columns())};
  });
}

void compute_shares(BinnedRelation& relation, std::span<const double> scores, int threads) {
  const auto& indptr = relation.view.csc.indptr;
  run_team(threads, [&](int t) {
    const auto [begin, end] = even_cut(relation.view.csc.num_columns(), threads, t);
    for (int64_t v = begin; v < end; ++v) {
      const auto i = static_cast<size_t>(v);
      const int64_t degree = indptr[i + 1] - indptr[i];
      relation.shares[v] = scores[i] / static_cast<double>(degree | (degree == 0));  // 0: nobody asks
    }
  });
}

/// Adds what bin `bin` receives over one relation.
void gather_bin(const BinnedRelation& relation, int64_t bin, double* sums) {
  const BinRecord* records = relation.bins.data();
  for (const auto& marks : relation.marks)
    for (size_t i = 0; i + 1 < marks.size(); ++i) {
      const double* shares = relation.shares.data() + (marks[i].block << kColumnBits);
      const int64_t begin = marks[i].begins[static_cast<size_t>(bin)];
      const int64_t end = marks[i + 1].begins[static_cast<size_t>(bin)];
      for (int64_t k = begin; k < end; ++k)
        sums[records[k] & kSourceMask] += shares[records[k] >> kSourceBits];
    }
}

/// A bin of a node type: the unit of work of a sweep.
struct Bin {
  int type;
  int64_t index;
};

class Sweeper {
 public:
  Sweeper(std::vector<BinnedRelation> relations, std::vector<Buffer<double>> scores,
          const std::vector<std::span<const double>>& teleport, const PagerankOptions& options)
      : relations_(std::move(relations)), scores_(std::move(scores)), teleport_(teleport), options_(options) {
    for (size_t t = 0; t < scores_.size(); ++t)
      for (int64_t b = 0; b < bin_grid(scores_[t].size()).num_buckets(); ++b)
        bins_.push_back({static_cast<int>(t), b});
    changes_.resize(bins_.size());
  }

  /// One sweep; returns the L1 change.
  double sweep() {
    for (auto& relation : relations_)
      compute_shares(relation, scores_[static_cast<size_t>(relation.view.dst_type)].span(), options_.threads);
    for_blocks(options_.threads, static_cast<int64_t>(bins_.size()), [&](int64_t i) {
      changes_[static_cast<size_t>(i)] = update_bin(bins_[static_cast<size_t>(i)]);
    });
    double change = 0;
    for (const double c : changes_) change += c;
    return change;
  }

  std::vector<Buffer<double>> take_scores() { return std::move(scores_); }

 private:
  double update_bin(const Bin& bin) {
    thread_local std::vector<double> sums;
    const auto type = static_cast<size_t>(bin.type);
    const BucketGrid grid = bin_grid(scores_[type].size());
    const int64_t first = grid.first_key(bin.index), end = grid.end_key(bin.index);
    sums.assign(static_cast<size_t>(end - first), 0.0);
    for (const auto& relation : relations_)
      if (relation.view.src_type == bin.type) gather_bin(relation, bin.index, sums.data());
    double change = 0;
    for (int64_t u = first; u < end; ++u) {
      const double next =
          teleport_[type][static_cast<size_t>(u)] + options_.damping * sums[static_cast<size_t>(u - first)];
      change += std::abs(next - scores_[type][u]);
      scores_[type][u] = next;
    }
    return change;
  }

  std::vector<BinnedRelation> relations_;
  std::vector<Buffer<double>> scores_;
  const std::vector<std::span<const double>>& teleport_;
  const PagerankOptions& options_;
  std::vector<Bin> bins_;
  std::vector<double> changes_;
};

void check_shapes(const std::vector<PagerankRelation>& relations, const std::vector<int64_t>& num_nodes,
                  const std::vector<std::span<const double>>& start,
                  const std::vector<std::span<const double>>& teleport, int threads) {
  const size_t types = num_nodes.size();
  TIERING_EXPECT(start.size() == types && teleport.size() == types,
                 "start and teleport need one vector per node type: " + std::to_string(types));
  for (size_t t = 0; t < types; ++t) {
    const auto n = static_cast<size_t>(num_nodes[t]);
    TIERING_EXPECT(
        start[t].size() == n && teleport[t].size() == n,
        "node type " + std::to_string(t) + ": start and teleport need " + std::to_string(n) + " values");
  }
  for (const auto& r : relations) {
    TIERING_EXPECT(static_cast<size_t>(r.src_type) < types && static_cast<size_t>(r.dst_type) < types,
                   "a relation names a node type outside 0.." + std::to_string(types) + "-1");
    const int64_t columns = r.csc.num_columns(), expected = num_nodes[static_cast<size_t>(r.dst_type)];
    TIERING_EXPECT(columns == expected, "a relation has " + std::to_string(columns) +
                                            " columns, its node type has " + std::to_string(expected) +
                                            " nodes");
    check_indptr(r.csc, threads);
  }
}

}  // namespace

PagerankResult reverse_pagerank(const std::vector<PagerankRelation>& relations,
                                const std::vector<int64_t>& num_nodes,
                                const std::vector<std::span<const double>>& start,
                                const std::vector<std::span<const double>>& teleport,
                                const PagerankOptions& options) {
  check_shapes(relations, num_nodes, start, teleport, options.threads);
  std::vector<BinnedRelation> binned;
  for (const auto& r : relations)
    binned.push_back(bin_relation(r, num_nodes[static_cast<size_t>(r.src_type)], options.threads));
  std::vector<Buffer<double>> scores;
  for (const auto& values : start) {
    scores.emplace_back(static_cast<int64_t>(values.size()));
    std::copy(values.begin(), values.end(), scores.back().data());
  }

  PagerankResult result;
  Sweeper sweeper(std::move(binned), std::move(scores), teleport, options);
  while (result.sweeps < options.max_sweeps) {
    result.residual = sweeper.sweep();
    ++result.sweeps;
    if (options.tolerance > 0 && result.residual <= options.tolerance) break;
  }
  result.scores = sweeper.take_scores();
  return result;
}

}  // namespace tiering
