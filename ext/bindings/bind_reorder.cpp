// Bindings of ext/src/reorder.
#include <tiering/reorder.hpp>

#include "ndarray_types.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace tiering::bind;

namespace {

nb::tuple relabel_csc(const AnyArray& indptr, const AnyArray& indices, const AnyArray& dst_new_to_old,
                      const AnyArray& src_old_to_new, int threads, bool want_positions) {
  check_threads(threads);
  const auto csc = csc_view(indptr, indices);
  const auto columns = id_span(dst_new_to_old, "dst_new_to_old");
  const auto sources = id_span(src_old_to_new, "src_old_to_new");
  auto arrays =
      without_gil([&] { return tiering::relabel_csc(csc, columns, sources, threads, want_positions); });
  nb::object positions = nb::none();
  if (want_positions) positions = to_numpy(std::move(arrays.positions));
  return nb::make_tuple(to_numpy(std::move(arrays.indptr)), to_numpy(std::move(arrays.indices)), positions);
}

nb::object sort_by_score(const AnyArray& scores, int threads) {
  check_threads(threads);
  const auto values = score_span(scores, "scores");
  return to_numpy(without_gil([&] { return tiering::sort_by_score(values, threads); }));
}

nb::object invert_permutation(const AnyArray& new_to_old, int threads) {
  check_threads(threads);
  const auto ids = id_span(new_to_old, "new_to_old");
  return to_numpy(without_gil([&] { return tiering::invert_permutation(ids, threads); }));
}

tiering::RowsView rows_view(const AnyArray& table) {
  if (table.ndim() != 2 || table.dtype() != nb::dtype<uint8_t>())
    mismatch("table", "2-D uint8 array (rows, row_bytes)", table);
  const auto rows = static_cast<int64_t>(table.shape(0)), bytes = static_cast<int64_t>(table.shape(1));
  if (table.size() > 0 && ((bytes > 1 && table.stride(1) != 1) || (rows > 1 && table.stride(0) != bytes)))
    mismatch("table", "C-contiguous 2-D uint8 array (rows, row_bytes)", table);
  return {static_cast<const std::byte*>(table.data()), rows, bytes};
}

tiering::RowsTarget rows_target(const AnyMutableArray& out, int64_t row_bytes) {
  if (out.ndim() != 2 || out.dtype() != nb::dtype<uint8_t>() ||
      static_cast<int64_t>(out.shape(1)) != row_bytes ||
      (out.size() > 0 && row_bytes > 1 && out.stride(1) != 1))
    mismatch("out", "2-D uint8 array with rows as long as the table's, contiguous within a row", out);
  return {static_cast<std::byte*>(out.data()), static_cast<int64_t>(out.shape(0)), out.stride(0)};
}

void gather_rows(const AnyArray& table, const AnyArray& ids, const AnyMutableArray& out, int threads) {
  check_threads(threads);
  const auto rows = rows_view(table);
  const auto target = rows_target(out, rows.row_bytes);
  const auto wanted = id_span(ids, "ids");
  without_gil([&] { tiering::gather_rows(rows, wanted, target, threads); });
}

void scatter_rows(const AnyArray& table, const AnyArray& places, const AnyMutableArray& out, int threads) {
  check_threads(threads);
  const auto rows = rows_view(table);
  const auto target = rows_target(out, rows.row_bytes);
  const auto where = id_span(places, "places");
  without_gil([&] { tiering::scatter_rows(rows, where, target, threads); });
}

}  // namespace

void bind_reorder(nb::module_& m) {
  m.def("relabel_csc", &relabel_csc, "indptr"_a, "indices"_a, "dst_new_to_old"_a, "src_old_to_new"_a,
        "threads"_a = 1, "want_positions"_a = false);
  m.def("sort_by_score", &sort_by_score, "scores"_a, "threads"_a = 1);
  m.def("invert_permutation", &invert_permutation, "new_to_old"_a, "threads"_a = 1);
  m.def("scatter_rows", &scatter_rows, "table"_a, "places"_a, "out"_a, "threads"_a = 1);
  m.def("gather_rows", &gather_rows, "table"_a, "ids"_a, "out"_a, "threads"_a = 1);
}
