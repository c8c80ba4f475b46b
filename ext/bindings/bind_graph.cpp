// Bindings of ext/src/graph.
#include <tiering/graph.hpp>

#include "ndarray_types.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace tiering::bind;

namespace {

nb::tuple csc_tuple(tiering::CscArrays&& arrays, bool with_positions) {
  nb::object positions = nb::none();
  if (with_positions) positions = to_numpy(std::move(arrays.positions));
  return nb::make_tuple(to_numpy(std::move(arrays.indptr)), to_numpy(std::move(arrays.indices)), positions);
}

nb::tuple coo_to_csc(const AnyArray& src, const AnyArray& dst, int64_t num_src, int64_t num_dst, int threads,
                     bool want_positions) {
  check_threads(threads);
  const auto s = id_view(src, "src"), d = id_view(dst, "dst");
  return csc_tuple(
      without_gil([&] { return tiering::coo_to_csc(s, d, num_src, num_dst, threads, want_positions); }),
      want_positions);
}

nb::tuple transpose(const AnyArray& indptr, const AnyArray& indices, int64_t num_rows, int threads,
                    bool want_positions) {
  check_threads(threads);
  const auto csc = csc_view(indptr, indices);
  return csc_tuple(without_gil([&] { return tiering::transpose(csc, num_rows, threads, want_positions); }),
                   want_positions);
}

void check_indptr(const AnyArray& indptr, int64_t num_indices, int threads) {
  check_threads(threads);
  const auto offsets = value_span<int64_t>(indptr, "indptr", "contiguous 1-D int64 array");
  without_gil([&] { tiering::check_indptr(offsets, num_indices, "indptr", threads); });
}

void check_csc(const AnyArray& indptr, const AnyArray& indices, int64_t num_src, int threads) {
  check_threads(threads);
  const auto csc = csc_view(indptr, indices);
  without_gil([&] { tiering::check_csc(csc, num_src, threads); });
}

nb::object out_degrees(const AnyArray& indices, int64_t num_src, int threads) {
  check_threads(threads);
  const auto ids = id_span(indices, "indices");
  return to_numpy(without_gil([&] { return tiering::out_degrees(ids, num_src, threads); }));
}

nb::tuple rmat_edges(int scale, int64_t num_edges, uint64_t seed, int threads, bool scramble) {
  check_threads(threads);
  if (num_edges < 0)
    throw tiering::InputError("num_edges: expected 0 or more, found " + std::to_string(num_edges));
  tiering::Buffer<int32_t> src(num_edges), dst(num_edges);
  without_gil([&] { tiering::rmat_edges(scale, seed, scramble, src.span(), dst.span(), threads); });
  return nb::make_tuple(to_numpy(std::move(src)), to_numpy(std::move(dst)));
}

}  // namespace

void bind_graph(nb::module_& m) {
  m.def("coo_to_csc", &coo_to_csc, "src"_a, "dst"_a, "num_src"_a, "num_dst"_a, "threads"_a = 1,
        "want_positions"_a = false);
  m.def("transpose", &transpose, "indptr"_a, "indices"_a, "num_rows"_a, "threads"_a = 1,
        "want_positions"_a = false);
  m.def("check_indptr", &check_indptr, "indptr"_a, "num_indices"_a, "threads"_a = 1);
  m.def("check_csc", &check_csc, "indptr"_a, "indices"_a, "num_src"_a, "threads"_a = 1);
  m.def("out_degrees", &out_degrees, "indices"_a, "num_src"_a, "threads"_a = 1);
  m.def("rmat_edges", &rmat_edges, "scale"_a, "num_edges"_a, "seed"_a = 0, "threads"_a = 1,
        "scramble"_a = false);
}
