// Sums over out-edges by who holds a part of a graph: some bins of sources, and the edges into them block after block.
//
// Returns:    for each source u of the task, the sum over edges u -> v of the value of v: the same bytes as a sweep of
//             scores/out_edge_sums.hpp over the whole graph gives.
// How:        blocks come in the canonical order: relations in list order, in each the columns of high degree before
//             the others, columns ascending. What a bin has got so far says where it is in its pieces.
// Memory:     8 bytes per source, and 8 more for those of bins that are summed in pieces.
// Cost:       one addition per edge, within sources that fit the private cache, as blocks are sorted by bin.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <tiering/buffer.hpp>
#include <vector>

namespace tiering {

/// How sources are cut into bins: bin b has the nodes [b << shift, (b + 1) << shift) of a type of `num_nodes`.
int source_bin_shift(int64_t num_nodes);

/// In-degree from which a column of a relation with `columns` columns is summed before the others.
int64_t high_column_degree(int64_t columns, int64_t num_sources);

class BlockSums {
 public:
  /// Sums of `num_sources` sources, the first of which begins a bin of 2^shift. `bin_edges`: edges of each bin, of all
  /// relations; `all_edges`: of the whole graph, all types. A bin of more edges than max(min_piece, all_edges /
  /// max_pieces) is summed in pieces; by default both are as in a sweep. Throws InputError for sizes that do not fit
  /// together.
  BlockSums(int64_t num_sources, int shift, std::span<const int64_t> bin_edges, int64_t all_edges,
            int64_t min_piece = 0, int64_t max_pieces = 0);

  /// Adds values[columns[k]] to sources[k] for each edge k of a block, which is sorted by bin, and in a bin in the
  /// order of its columns. Without `values`, of a relation that adds nothing, edges only count for where pieces end.
  /// Throws InputError for a source or column out of range, a block that is not sorted by bin, or more edges than a bin
  /// has; the sums are then undefined.
  void add(std::span<const uint32_t> sources, std::span<const uint32_t> columns,
           const std::optional<std::span<const double>>& values, int threads);

  /// The sums, once all edges were added; InputError before, and if they were taken already.
  Buffer<double> take();

 private:
  struct Bin {
    int64_t edges, pieces, piece, done, piece_end;
    std::vector<double> total;
  };

  /// Edges of one bin in a row, within a block.
  struct Run {
    std::span<const uint32_t> sources, columns;
    int64_t first_edge;  ///< in the block
  };

  void add_to(int64_t bin, const Run& run, const std::optional<std::span<const double>>& values);
  void check_sources(int64_t bin, const Run& run) const;
  void add_values(const Run& run, std::span<const double> values);
  void end_piece(Bin& bin, double* own, int64_t size) const;
  int64_t size(int64_t bin) const;

  int shift_;
  Buffer<double> sums_;
  std::vector<Bin> bins_;
  bool taken_ = false;
};

}  // namespace tiering
