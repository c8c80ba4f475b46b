// Bindings of ext/src/graph.
#include "ndarray_types.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace tiering::bind;

namespace {

using Offsets = Values<const int64_t, "indptr">;
using Source = Argument<tiering::IdView, "src">;
using Destination = Argument<tiering::IdView, "dst">;
using Bytes = Values<std::byte, "parts">;
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

void scatter_edges(const Source& src, const Destination& dst,
                   const std::vector<std::optional<Argument<tiering::EdgeValues, "values">>>& values,
                   int64_t first_edge, int64_t num_src, int64_t num_dst, int shift,
                   const Argument<Counts, "counts">& counts, int64_t first, const std::vector<Bytes>& parts) {
  tiering::EdgeChunk chunk{src, dst, first_edge, {}};
  for (const auto& each : values) {
    chunk.values.push_back(each ? each->get() : tiering::EdgeValues{});
    TIERING_EXPECT(!each || static_cast<int64_t>(each->array.shape(0)) == chunk.dst.size,
                   "values: expected one per edge, ", chunk.dst.size);
  }
  const auto grid = grid_of(num_dst, shift);
  const Counts by_thread = counts;
  tiering::scatter_edges(chunk, num_src, grid, with_columns(by_thread, grid.num_buckets()), first, all(parts),
                         static_cast<int>(by_thread.rows));
}

void sort_runs(const Values<std::byte, "memory">& memory, const Argument<Counts, "places">& places,
               const Argument<Counts, "counts">& counts, const std::vector<int64_t>& item_bytes, int64_t num_columns,
               int shift, int64_t num_src, int64_t first_entry, const Values<int64_t, "indptr">& indptr,
               const std::vector<Bytes>& outs, Threads threads) {
  for (const int64_t item : item_bytes) TIERING_EXPECT(item > 0, "a value has no bytes");
  const auto grid = grid_of(num_columns, shift);
  const tiering::ScatteredRuns runs{memory, with_columns(places, static_cast<int64_t>(item_bytes.size()) + 1),
                                    with_columns(counts, grid.num_buckets()), item_bytes};
  tiering::sort_runs(runs, grid, num_src, first_entry, indptr, all(outs), threads);
}

}  // namespace

void bind_graph(nb::module_& m) {
  m.def(
      "check_indptr",
      [](const Offsets& indptr, int64_t num_indices, Threads threads) {
        tiering::check_indptr(indptr, num_indices, "indptr", threads);
      },
      "indptr"_a, "num_indices"_a, "threads"_a = 1, Release());
  m.def(
      "check_csc",
      [](const Offsets& indptr, const Ids<"indices">& indices, int64_t num_src, Threads threads) {
        tiering::check_csc(csc_view(indptr, indices), num_src, threads);
      },
      "indptr"_a, "indices"_a, "num_src"_a, "threads"_a = 1, Release());
  m.def(
      "out_degrees",
      [](const Ids<"indices">& indices, int64_t num_src, Threads threads) {
        return tiering::out_degrees(indices, num_src, threads);
      },
      "indices"_a, "num_src"_a, "threads"_a = 1, Release());
  m.def(
      "order_lists",
      [](const Values<const int64_t, "keys">& keys, const Offsets& indptr, Threads threads) {
        return tiering::order_lists(keys, indptr, threads);
      },
      "keys"_a, "indptr"_a, "threads"_a = 1, Release());
  m.def("scattered_bytes", &tiering::scattered_bytes, "num_src"_a);
  m.def(
      "count_buckets",
      [](const Destination& dst, int64_t first_edge, int64_t num_dst, int shift, Threads threads) {
        const auto grid = grid_of(num_dst, shift);
        return Shaped<std::vector<int64_t>, 2>{
            tiering::count_buckets(dst, first_edge, grid, threads),
            {static_cast<size_t>(threads.count), static_cast<size_t>(grid.num_buckets())}};
      },
      "dst"_a, "first_edge"_a, "num_dst"_a, "shift"_a, "threads"_a = 1, Release());
  m.def("scatter_edges", &scatter_edges, "src"_a, "dst"_a, "values"_a, "first_edge"_a, "num_src"_a, "num_dst"_a,
        "shift"_a, "counts"_a, "first"_a, "parts"_a, Release());
  m.def("sort_runs", &sort_runs, "memory"_a, "places"_a, "counts"_a, "item_bytes"_a, "num_columns"_a, "shift"_a,
        "num_src"_a, "first_entry"_a, "indptr"_a, "outs"_a, "threads"_a = 1, Release());
}
