// Bindings of ext/src/graph/edge_scatter.cpp.
#include <nanobind/stl/vector.h>

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

template <typename Byte, typename Array>
std::span<Byte> bytes_of(const Array& a, const char* name) {
  if (!contiguous_1d(a) || a.dtype() != nb::dtype<uint8_t>()) mismatch(name, "contiguous 1-D uint8 array", a);
  return {static_cast<Byte*>(a.data()), a.shape(0)};
}

/// Entries of an int64 matrix whose rows are `columns` long.
std::span<const int64_t> matrix(const AnyArray& a, const char* name, int64_t columns) {
  if (a.ndim() != 2 || a.dtype() != nb::dtype<int64_t>() || static_cast<int64_t>(a.shape(1)) != columns ||
      (a.shape(1) > 1 && a.stride(1) != 1) || (a.shape(0) > 1 && a.stride(0) != columns))
    mismatch(name, "contiguous int64 array with a column per bucket", a);
  return {static_cast<const int64_t*>(a.data()), a.shape(0) * a.shape(1)};
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

void scatter_edges(const AnyArray& src, const AnyArray& dst, int64_t first_edge, int64_t num_src,
                   int64_t num_dst, int shift, const AnyArray& counts, int64_t first, int64_t split,
                   const AnyMutableArray& low, const AnyMutableArray& high) {
  const auto s = id_view(src, "src"), d = id_view(dst, "dst");
  const auto grid = grid_of(num_dst, shift);
  const auto known = matrix(counts, "counts", grid.num_buckets());
  const auto threads = static_cast<int>(counts.shape(0));
  const tiering::ScatterTarget target{first, split, bytes_of<std::byte>(low, "low"),
                                      bytes_of<std::byte>(high, "high")};
  without_gil([&] { tiering::scatter_edges(s, d, first_edge, num_src, grid, known, target, threads); });
}

void sort_runs(const std::vector<AnyArray>& runs, const AnyArray& counts, int64_t num_columns, int shift,
               int64_t num_src, int64_t first_entry, const AnyMutableArray& indptr,
               const AnyMutableArray& indices, int threads) {
  check_threads(threads);
  const auto grid = grid_of(num_columns, shift);
  tiering::ScatteredRuns scattered;
  scattered.counts = matrix(counts, "counts", grid.num_buckets());
  for (const auto& run : runs) scattered.chunks.push_back(bytes_of<const std::byte>(run, "runs"));
  if (!contiguous_1d(indptr) || indptr.dtype() != nb::dtype<int64_t>())
    mismatch("indptr", "contiguous 1-D int64 array", indptr);
  const std::span<int64_t> offsets(static_cast<int64_t*>(indptr.data()), indptr.shape(0));
  const auto out = bytes_of<std::byte>(indices, "indices");
  without_gil([&] { tiering::sort_runs(scattered, grid, num_src, first_entry, offsets, out, threads); });
}

}  // namespace

void bind_edge_scatter(nb::module_& m) {
  m.def("scattered_bytes", &tiering::scattered_bytes, "num_src"_a);
  m.def("count_buckets", &count_buckets, "dst"_a, "first_edge"_a, "num_dst"_a, "shift"_a, "threads"_a = 1);
  m.def("scatter_edges", &scatter_edges, "src"_a, "dst"_a, "first_edge"_a, "num_src"_a, "num_dst"_a,
        "shift"_a, "counts"_a, "first"_a, "split"_a, "low"_a, "high"_a);
  m.def("sort_runs", &sort_runs, "runs"_a, "counts"_a, "num_columns"_a, "shift"_a, "num_src"_a,
        "first_entry"_a, "indptr"_a, "indices"_a, "threads"_a = 1);
}
