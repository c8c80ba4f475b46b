#include "out_edge_sums.hpp"

#include <string>
#include <tiering/errors.hpp>
#include <tiering/graph.hpp>
#include <tiering/parallel.hpp>
#include <tiering/scan_columns.hpp>
#include <utility>

namespace tiering {
namespace {

// A bin has at most 2^16 sources, a block 2^16 columns: an edge is then 32 bits, and the accumulators of a bin
// and the values of a block (512 KiB each) are in the private cache together.
constexpr int kSourceBits = 16, kColumnBits = 16;
constexpr uint32_t kSourceMask = (uint32_t{1} << kSourceBits) - 1,
                   kColumnMask = (uint32_t{1} << kColumnBits) - 1;
constexpr int64_t kWantedBins = 64;

BucketGrid bin_grid(int64_t num_nodes) { return choose_grid(num_nodes, kWantedBins, kSourceBits, num_nodes); }

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
  for (const auto& r : relations)
    relations_.push_back(bin_relation(r, num_nodes_[static_cast<size_t>(r.src_type)], threads));
  for (size_t t = 0; t < num_nodes_.size(); ++t)
    for (int64_t b = 0; b < bin_grid(num_nodes_[t]).num_buckets(); ++b)
      bins_.push_back({static_cast<int>(t), b});
}

/// Sends the entries [begin, end) of the CSC to their bins, noting where each block of columns begins.
template <typename Index, typename Writer>
std::vector<OutEdgeSums::BlockMarks> OutEdgeSums::bin_entries(const CscView& csc,
                                                              std::span<const Index> indices,
                                                              uint32_t source_mask, int64_t begin,
                                                              int64_t end, Writer& writer) {
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

OutEdgeSums::BinnedRelation OutEdgeSums::bin_relation(const ScoreRelation& relation, int64_t num_src,
                                                      int threads) {
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
    return BinnedRelation{relation.src_type, true, std::move(bins), std::move(marks),
                          Buffer<double>(csc.num_columns())};
  });
}

/// Adds what bin `bin` receives over one relation.
void OutEdgeSums::gather_bin(const BinnedRelation& relation, int64_t bin, double* sums) {
  const BinRecord* records = relation.bins.data();
  for (const auto& marks : relation.marks)
    for (size_t i = 0; i + 1 < marks.size(); ++i) {
      const double* values = relation.values.data() + (marks[i].block << kColumnBits);
      const int64_t begin = marks[i].begins[static_cast<size_t>(bin)];
      const int64_t end = marks[i + 1].begins[static_cast<size_t>(bin)];
      for (int64_t k = begin; k < end; ++k)
        sums[records[k] & kSourceMask] += values[records[k] >> kSourceBits];
    }
}

SumRange OutEdgeSums::sum_bin(const Bin& bin) const {
  thread_local std::vector<double> sums;
  const BucketGrid grid = bin_grid(num_nodes_[static_cast<size_t>(bin.type)]);
  const int64_t first = grid.first_key(bin.index), end = grid.end_key(bin.index);
  sums.assign(static_cast<size_t>(end - first), 0.0);
  for (const auto& relation : relations_)
    if (relation.active && relation.src_type == bin.type) gather_bin(relation, bin.index, sums.data());
  return {bin.type, first, sums};
}

void OutEdgeSums::sweep(const std::function<void(int64_t, const SumRange&)>& use) const {
  for_blocks(threads_, num_ranges(), [&](int64_t i) { use(i, sum_bin(bins_[static_cast<size_t>(i)])); });
}

}  // namespace tiering
