// Bindings of ext/src/graph.
#include "ndarray_types.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace tiering::bind;

namespace {

using Parts = std::vector<std::span<std::byte>>;
using Counts = Matrix<const int64_t>;

tiering::BucketGrid grid_of(int64_t num_keys, int shift) {
  TIERING_EXPECT(num_keys > 0 && shift >= 0 && shift < 32,
                 "a grid needs columns, and at most 2^31 of them in a bucket");
  return {num_keys, shift};
}

std::span<const int64_t> with_columns(const Counts& matrix, int64_t columns) {
  TIERING_EXPECT(matrix.columns == columns, "a run needs one column for each bucket and each value");
  return matrix.entries;
}

auto count_buckets(tiering::IdView dst, int64_t first_edge, int64_t num_dst, int shift, int threads) {
  const auto grid = grid_of(num_dst, shift);
  return Shaped<std::vector<int64_t>, 2>{tiering::count_buckets(dst, first_edge, grid, threads),
                                         {static_cast<size_t>(threads), static_cast<size_t>(grid.num_buckets())}};
}

void scatter_edges(tiering::IdView src, tiering::IdView dst,
                   const std::vector<std::optional<tiering::EdgeValues>>& values, int64_t first_edge, int64_t num_src,
                   int64_t num_dst, int shift, Counts counts, int64_t first, const Parts& parts) {
  tiering::EdgeChunk chunk{src, dst, first_edge, {}};
  for (const auto& each : values) {
    chunk.values.push_back(each.value_or(tiering::EdgeValues{}));
    TIERING_EXPECT(!each || each->num_edges == dst.size, "values: expected one per edge, ", dst.size);
  }
  const auto grid = grid_of(num_dst, shift);
  tiering::scatter_edges(chunk, num_src, grid, with_columns(counts, grid.num_buckets()), first, parts,
                         static_cast<int>(counts.rows));
}

void sort_runs(std::span<std::byte> memory, Counts places, Counts counts, const std::vector<int64_t>& item_bytes,
               int64_t num_columns, int shift, int64_t num_src, int64_t first_entry, std::span<int64_t> indptr,
               const Parts& outs, int threads) {
  for (const int64_t item : item_bytes) TIERING_EXPECT(item > 0, "a value has no bytes");
  const auto grid = grid_of(num_columns, shift);
  const tiering::ScatteredRuns runs{memory, with_columns(places, static_cast<int64_t>(item_bytes.size()) + 1),
                                    with_columns(counts, grid.num_buckets()), item_bytes};
  tiering::sort_runs(runs, grid, num_src, first_entry, indptr, outs, threads);
}

}  // namespace

void bind_graph(nb::module_& m) {
  define(
      m, "check_indptr",
      +[](std::span<const int64_t> indptr, int64_t num_indices, int threads) {
        tiering::check_indptr(indptr, num_indices, "indptr", threads);
      },
      "indptr"_a, "num_indices"_a, "threads"_a = 1);
  define(
      m, "check_csc",
      +[](std::span<const int64_t> indptr, tiering::IdSpan indices, int64_t num_src, int threads) {
        tiering::check_csc(csc_view(indptr, indices), num_src, threads);
      },
      "indptr"_a, "indices"_a, "num_src"_a, "threads"_a = 1);
  define(m, "out_degrees", &tiering::out_degrees, "indices"_a, "num_src"_a, "threads"_a = 1);
  define(m, "order_lists", &tiering::order_lists, "keys"_a, "indptr"_a, "threads"_a = 1);
  define(m, "scattered_bytes", &tiering::scattered_bytes, "num_src"_a);
  define(m, "count_buckets", &count_buckets, "dst"_a, "first_edge"_a, "num_dst"_a, "shift"_a, "threads"_a = 1);
  define(m, "scatter_edges", &scatter_edges, "src"_a, "dst"_a, "values"_a, "first_edge"_a, "num_src"_a, "num_dst"_a,
         "shift"_a, "counts"_a, "first"_a, "parts"_a);
  define(m, "sort_runs", &sort_runs, "memory"_a, "places"_a, "counts"_a, "item_bytes"_a, "num_columns"_a, "shift"_a,
         "num_src"_a, "first_entry"_a, "indptr"_a, "outs"_a, "threads"_a = 1);
}
