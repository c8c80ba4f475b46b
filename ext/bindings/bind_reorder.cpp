// Bindings of ext/src/reorder.
#include <tiering/reorder.hpp>

#include "ndarray_types.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace tiering::bind;

namespace {

tiering::RowsView rows_view(const AnyArray& table, const char* name) {
  if (table.ndim() != 2 || table.dtype() != nb::dtype<uint8_t>())
    mismatch(name, "2-D uint8 array (rows, row_bytes)", table);
  const auto rows = static_cast<int64_t>(table.shape(0)), bytes = static_cast<int64_t>(table.shape(1));
  if (table.size() > 0 && ((bytes > 1 && table.stride(1) != 1) || (rows > 1 && table.stride(0) != bytes)))
    mismatch(name, "C-contiguous 2-D uint8 array (rows, row_bytes)", table);
  return {static_cast<const std::byte*>(table.data()), rows, bytes};
}

nb::tuple relabel_csc(const AnyArray& indptr, const AnyArray& indices, const AnyArray& dst_old_to_new,
                      const AnyArray& src_old_to_new, int threads) {
  check_threads(threads);
  const auto csc = csc_view(indptr, indices);
  const auto columns = id_span(dst_old_to_new, "dst_old_to_new");
  const auto sources = id_span(src_old_to_new, "src_old_to_new");
  auto arrays = without_gil([&] { return tiering::relabel_csc(csc, columns, sources, threads); });
  return nb::make_tuple(to_numpy(std::move(arrays.indptr)), to_numpy(std::move(arrays.indices)));
}

std::span<const int64_t> offsets(const AnyArray& a, const char* name) {
  return value_span<int64_t>(a, name, "contiguous 1-D int64 array");
}

nb::object relabel_indptr(const AnyArray& indptr, const AnyArray& dst_old_to_new, int threads) {
  check_threads(threads);
  const auto old = offsets(indptr, "indptr");
  const auto columns = id_span(dst_old_to_new, "dst_old_to_new");
  return to_numpy(without_gil([&] { return tiering::relabel_indptr(old, columns, threads); }));
}

/// The window whose first entry is `first` and whose bytes are `out`, items of item_bytes.
tiering::RelabelWindow window_of(int64_t first, int64_t first_column, std::span<const int64_t> starts,
                                 const AnyMutableArray& out, int64_t item_bytes) {
  if (!contiguous_1d(out) || out.dtype() != nb::dtype<uint8_t>() ||
      out.shape(0) % static_cast<size_t>(item_bytes) != 0)
    mismatch("out", "contiguous uint8 array of whole items", out);
  const auto size = static_cast<int64_t>(out.shape(0)) / item_bytes;
  return {first, first + size, first_column, starts, out.data()};
}

void place_indices(const AnyArray& indices, int64_t first_entry, const AnyArray& indptr,
                   const AnyArray& dst_old_to_new, int64_t num_src, int64_t first, int64_t first_column,
                   const AnyArray& starts, const AnyMutableArray& out, int threads) {
  check_threads(threads);
  const auto ids = id_span(indices, "indices");
  const tiering::OldEntries chunk{offsets(indptr, "indptr"), id_span(dst_old_to_new, "dst_old_to_new"),
                                  first_entry, first_entry + ids.size};
  const auto window = window_of(first, first_column, offsets(starts, "starts"), out,
                                tiering::needs_wide_ids(num_src) ? 8 : 4);
  without_gil([&] { tiering::place_indices(ids, num_src, chunk, window, threads); });
}

void place_values(const AnyArray& values, int64_t first_entry, const AnyArray& indptr,
                  const AnyArray& dst_old_to_new, int64_t first, int64_t first_column, const AnyArray& starts,
                  const AnyMutableArray& out, int threads) {
  check_threads(threads);
  const auto [data, count, item_bytes] = rows_view(values, "values");
  if (item_bytes == 0) mismatch("values", "values of a byte or more", values);
  const tiering::OldEntries chunk{offsets(indptr, "indptr"), id_span(dst_old_to_new, "dst_old_to_new"),
                                  first_entry, first_entry + count};
  const auto window = window_of(first, first_column, offsets(starts, "starts"), out, item_bytes);
  without_gil([&] { tiering::place_values(data, item_bytes, chunk, window, threads); });
}

void rename_sources(const AnyMutableArray& entries, const AnyArray& src_old_to_new, int64_t first_source,
                    int64_t num_src, int threads) {
  check_threads(threads);
  const tiering::SourceMap sources{id_span(src_old_to_new, "src_old_to_new"), first_source, num_src};
  if (first_source < 0 || first_source > num_src - sources.old_to_new.size)
    mismatch("src_old_to_new", "new ids of sources below num_src", src_old_to_new);
  const auto window = window_of(0, 0, {}, entries, tiering::needs_wide_ids(num_src) ? 8 : 4);
  without_gil([&] { tiering::rename_sources(window.out, window.end, sources, threads); });
}

nb::object sort_by_score(const AnyArray& scores, int threads) {
  check_threads(threads);
  const auto values = score_span(scores, "scores");
  return to_numpy(without_gil([&] { return tiering::sort_by_score(values, threads); }));
}

struct BoundSorter {
  BoundSorter(int64_t size, int threads) : sorter(size, (check_threads(threads), threads)) {}
  tiering::ScoreSorter sorter;
};

void count_scores(BoundSorter& self, const AnyArray& scores) {
  const auto values = score_span(scores, "scores");
  without_gil([&] { self.sorter.count(values); });
}

void place_scores(BoundSorter& self, const AnyArray& scores) {
  const auto values = score_span(scores, "scores");
  without_gil([&] { self.sorter.place(values); });
}

nb::object finish_sorting(BoundSorter& self) {
  return to_numpy(without_gil([&] { return self.sorter.finish(); }));
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
  const auto rows = rows_view(table, "table");
  const auto target = rows_target(out, rows.row_bytes);
  const auto wanted = id_span(ids, "ids");
  without_gil([&] { tiering::gather_rows(rows, wanted, target, threads); });
}

void scatter_rows(const AnyArray& table, const AnyArray& places, int64_t first, const AnyMutableArray& out,
                  int threads) {
  check_threads(threads);
  const auto rows = rows_view(table, "table");
  const auto target = rows_target(out, rows.row_bytes);
  const auto where = id_span(places, "places");
  without_gil([&] { tiering::scatter_rows(rows, where, first, target, threads); });
}

}  // namespace

void bind_reorder(nb::module_& m) {
  m.def("relabel_csc", &relabel_csc, "indptr"_a, "indices"_a, "dst_old_to_new"_a, "src_old_to_new"_a,
        "threads"_a = 1);
  m.def("relabel_indptr", &relabel_indptr, "indptr"_a, "dst_old_to_new"_a, "threads"_a = 1);
  m.def("place_indices", &place_indices, "indices"_a, "first_entry"_a, "indptr"_a, "dst_old_to_new"_a,
        "num_src"_a, "first"_a, "first_column"_a, "starts"_a, "out"_a, "threads"_a = 1);
  m.def("place_values", &place_values, "values"_a, "first_entry"_a, "indptr"_a, "dst_old_to_new"_a, "first"_a,
        "first_column"_a, "starts"_a, "out"_a, "threads"_a = 1);
  m.def("rename_sources", &rename_sources, "entries"_a, "src_old_to_new"_a, "first_source"_a, "num_src"_a,
        "threads"_a = 1);
  m.def("sort_by_score", &sort_by_score, "scores"_a, "threads"_a = 1);
  nb::class_<BoundSorter>(m, "ScoreSorter")
      .def(nb::init<int64_t, int>(), "size"_a, "threads"_a = 1)
      .def("count", &count_scores, "scores"_a)
      .def("place", &place_scores, "scores"_a)
      .def("finish", &finish_sorting);
  m.def("scatter_rows", &scatter_rows, "table"_a, "places"_a, "first"_a, "out"_a, "threads"_a = 1);
  m.def("gather_rows", &gather_rows, "table"_a, "ids"_a, "out"_a, "threads"_a = 1);
}
