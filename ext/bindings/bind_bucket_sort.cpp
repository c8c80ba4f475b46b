// Bindings of ext/src/graph/bucket_sort.cpp.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <tiering/graph.hpp>
#include <vector>

#include "ndarray_types.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace tiering::bind;

namespace {

tiering::BucketGrid grid_of(int64_t num_keys, int shift) {
  TIERING_EXPECT(num_keys > 0 && shift >= 0 && shift < 32,
                 "a grid needs columns, and at most 2^31 of them in a bucket");
  return {num_keys, shift};
}

std::span<std::byte> bytes_of(const AnyMutableArray& a, const char* name) {
  if (!contiguous_1d(a) || a.dtype() != nb::dtype<uint8_t>()) mismatch(name, "contiguous 1-D uint8 array", a);
  return {static_cast<std::byte*>(a.data()), a.shape(0)};
}

std::vector<std::span<std::byte>> all_bytes_of(const std::vector<AnyMutableArray>& arrays, const char* name) {
  std::vector<std::span<std::byte>> spans;
  for (const auto& array : arrays) spans.push_back(bytes_of(array, name));
  return spans;
}

/// Entries of an int64 matrix whose rows are `columns` long.
std::span<const int64_t> matrix(const AnyArray& a, const char* name, int64_t columns) {
  const bool strided = a.ndim() == 2 && a.shape(0) > 0 &&
                       ((a.shape(1) > 1 && a.stride(1) != 1) || (a.shape(0) > 1 && a.stride(0) != columns));
  if (a.ndim() != 2 || a.dtype() != nb::dtype<int64_t>() || static_cast<int64_t>(a.shape(1)) != columns ||
      strided)
    mismatch(name, "contiguous int64 array with one column for each", a);
  return {static_cast<const int64_t*>(a.data()), a.shape(0) * a.shape(1)};
}

/// Values as bytes of shape (edges, bytes of a value), with any distance between edges.
tiering::EdgeValues values_of(const std::optional<AnyArray>& values, int64_t num_edges) {
  if (!values) return {};
  const AnyArray& a = *values;
  if (a.ndim() != 2 || a.dtype() != nb::dtype<uint8_t>() || a.shape(1) == 0 ||
      (a.shape(1) > 1 && a.stride(1) != 1) || static_cast<int64_t>(a.shape(0)) != num_edges)
    mismatch("values", "uint8 array of shape (edges, bytes of a value)", a);
  return {static_cast<const std::byte*>(a.data()), static_cast<int64_t>(a.shape(1)), a.stride(0)};
}

nb::object count_buckets(const AnyArray& dst, int64_t first_edge, int64_t num_dst, int shift, int threads) {
  check_threads(threads);
  const auto d = id_view(dst, "dst");
  const auto grid = grid_of(num_dst, shift);
  const auto counts = without_gil([&] { return tiering::count_buckets(d, first_edge, grid, threads); });
  tiering::Buffer<int64_t> flat(static_cast<int64_t>(counts.size()));
  std::copy(counts.begin(), counts.end(), flat.data());
  return to_numpy(std::move(flat)).attr("reshape")(threads, grid.num_buckets());
}

void scatter_edges(const AnyArray& src, const AnyArray& dst,
                   const std::vector<std::optional<AnyArray>>& values, int64_t first_edge, int64_t num_src,
                   int64_t num_dst, int shift, const AnyArray& counts, int64_t first,
                   const std::vector<AnyMutableArray>& parts) {
  tiering::EdgeChunk chunk{id_view(src, "src"), id_view(dst, "dst"), first_edge, {}};
  for (const auto& each : values) chunk.values.push_back(values_of(each, chunk.dst.size));
  const auto grid = grid_of(num_dst, shift);
  const auto known = matrix(counts, "counts", grid.num_buckets());
  const auto threads = static_cast<int>(counts.shape(0));
  const auto memory = all_bytes_of(parts, "parts");
  without_gil([&] { tiering::scatter_edges(chunk, num_src, grid, known, first, memory, threads); });
}

void sort_runs(const AnyMutableArray& memory, const AnyArray& places, const AnyArray& counts,
               const std::vector<int64_t>& item_bytes, int64_t num_columns, int shift, int64_t num_src,
               int64_t first_entry, const AnyMutableArray& indptr, const std::vector<AnyMutableArray>& outs,
               int threads) {
  check_threads(threads);
  for (const int64_t item : item_bytes) TIERING_EXPECT(item > 0, "a value has no bytes");
  const auto grid = grid_of(num_columns, shift);
  const tiering::ScatteredRuns runs{
      bytes_of(memory, "memory"),
      matrix(places, "places", static_cast<int64_t>(item_bytes.size()) + 1),
      matrix(counts, "counts", grid.num_buckets()),
      item_bytes,
  };
  if (!contiguous_1d(indptr) || indptr.dtype() != nb::dtype<int64_t>())
    mismatch("indptr", "contiguous 1-D int64 array", indptr);
  const std::span<int64_t> offsets(static_cast<int64_t*>(indptr.data()), indptr.shape(0));
  const auto sorted = all_bytes_of(outs, "outs");
  without_gil([&] { tiering::sort_runs(runs, grid, num_src, first_entry, offsets, sorted, threads); });
}

}  // namespace

void bind_bucket_sort(nb::module_& m) {
  m.def("scattered_bytes", &tiering::scattered_bytes, "num_src"_a);
  m.def("count_buckets", &count_buckets, "dst"_a, "first_edge"_a, "num_dst"_a, "shift"_a, "threads"_a = 1);
  m.def("scatter_edges", &scatter_edges, "src"_a, "dst"_a, "values"_a, "first_edge"_a, "num_src"_a,
        "num_dst"_a, "shift"_a, "counts"_a, "first"_a, "parts"_a);
  m.def("sort_runs", &sort_runs, "memory"_a, "places"_a, "counts"_a, "item_bytes"_a, "num_columns"_a,
        "shift"_a, "num_src"_a, "first_entry"_a, "indptr"_a, "outs"_a, "threads"_a = 1);
}
