// Bindings of ext/src/reorder.
#include <nanobind/stl/unique_ptr.h>

#include "ndarray_types.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace tiering::bind;

namespace {

using Offsets = Values<const int64_t, "indptr">;
using Columns = Ids<"dst_old_to_new">;
using Sources = Ids<"src_old_to_new">;
using Starts = Values<const int64_t, "starts">;
using Scores = Values<const double, "scores">;
using Table = Argument<tiering::RowsView, "table">;
using Target = Argument<tiering::RowsTarget, "out">;

/// The window whose first entry is `first` and whose bytes are `out`, items of item_bytes.
tiering::RelabelWindow window_of(int64_t first, int64_t first_column, std::span<const int64_t> starts,
                                 std::span<std::byte> out, int64_t item_bytes) {
  const auto bytes = static_cast<int64_t>(out.size());
  TIERING_EXPECT(bytes % item_bytes == 0, "out: expected contiguous uint8 array of whole items, found ", bytes,
                 " bytes");
  return {first, first + bytes / item_bytes, first_column, starts, out.data()};
}

int64_t id_bytes(int64_t num_src) { return tiering::needs_wide_ids(num_src) ? 8 : 4; }

void place_indices(const Ids<"indices">& indices, int64_t first_entry, const Offsets& indptr, const Columns& columns,
                   int64_t num_src, int64_t first, int64_t first_column, const Starts& starts,
                   const Values<std::byte, "out">& out, Threads threads) {
  const tiering::IdSpan ids = indices;
  const tiering::OldEntries chunk{indptr, columns, first_entry, first_entry + ids.size};
  tiering::place_indices(ids, num_src, chunk, window_of(first, first_column, starts, out, id_bytes(num_src)), threads);
}

void place_values(const Argument<tiering::RowsView, "values">& values, int64_t first_entry, const Offsets& indptr,
                  const Columns& columns, int64_t first, int64_t first_column, const Starts& starts,
                  const Values<std::byte, "out">& out, Threads threads) {
  const auto [data, count, item_bytes] = values.get();
  TIERING_EXPECT(item_bytes > 0, "values: expected values of a byte or more");
  const tiering::OldEntries chunk{indptr, columns, first_entry, first_entry + count};
  tiering::place_values(data, item_bytes, chunk, window_of(first, first_column, starts, out, item_bytes), threads);
}

void rename_sources(const Values<std::byte, "entries">& entries, const Sources& src_old_to_new, int64_t first_source,
                    int64_t num_src, Threads threads) {
  const tiering::SourceMap sources{src_old_to_new, first_source, num_src};
  TIERING_EXPECT(first_source >= 0 && first_source <= num_src - sources.old_to_new.size,
                 "src_old_to_new: expected new ids of sources below num_src, ", num_src);
  const auto window = window_of(0, 0, {}, entries, id_bytes(num_src));
  tiering::rename_sources(window.out, window.end, sources, threads);
}

/// Where rows as long as the table's go.
tiering::RowsTarget target_of(const Target& out, const tiering::RowsView& table) {
  const bool fits = out.array.ndim() == 2 && static_cast<int64_t>(out.array.shape(1)) == table.row_bytes;
  TIERING_EXPECT(fits, "out: expected 2-D uint8 array with rows as long as the table's, ", table.row_bytes, " bytes");
  return out;
}

void add_rows(const Argument<tiering::NumberRows, "rows">& table, const Ids<"nodes">& nodes,
              const Ids<"neighbours">& neighbours, const Argument<Matrix<float>, "total">& total,
              const Values<int64_t, "degree">& degree, Threads threads) {
  const tiering::NumberRows rows = table;
  const Matrix<float> sums = total;
  const std::span<int64_t> counts = degree;
  TIERING_EXPECT(sums.columns == rows.dim, "total: expected sums of ", rows.dim, " entries as rows have, found ",
                 sums.columns);
  TIERING_EXPECT(static_cast<int64_t>(counts.size()) == sums.rows, "degree: expected one for each of ", sums.rows,
                 " nodes of total, found ", counts.size());
  tiering::add_rows(rows, nodes, neighbours, {sums.entries.data(), counts.data(), sums.rows}, threads);
}

}  // namespace

void bind_reorder(nb::module_& m) {
  m.def(
      "relabel_indptr",
      [](const Offsets& indptr, const Columns& columns, Threads threads) {
        return tiering::relabel_indptr(indptr, columns, threads);
      },
      "indptr"_a, "dst_old_to_new"_a, "threads"_a = 1, Release());
  m.def("place_indices", &place_indices, "indices"_a, "first_entry"_a, "indptr"_a, "dst_old_to_new"_a, "num_src"_a,
        "first"_a, "first_column"_a, "starts"_a, "out"_a, "threads"_a = 1, Release());
  m.def("place_values", &place_values, "values"_a, "first_entry"_a, "indptr"_a, "dst_old_to_new"_a, "first"_a,
        "first_column"_a, "starts"_a, "out"_a, "threads"_a = 1, Release());
  m.def("rename_sources", &rename_sources, "entries"_a, "src_old_to_new"_a, "first_source"_a, "num_src"_a,
        "threads"_a = 1, Release());
  m.def(
      "sort_by_score", [](const Scores& scores, Threads threads) { return tiering::sort_by_score(scores, threads); },
      "scores"_a, "threads"_a = 1, Release());
  nb::class_<tiering::ScoreSorter>(m, "ScoreSorter")
      .def(nb::new_([](int64_t size, Threads threads) { return tiering::ScoreSorter::make(size, threads); }), "size"_a,
           "threads"_a = 1)
      .def(
          "count", [](tiering::ScoreSorter& self, const Scores& scores) { self.count(scores); }, "scores"_a, Release())
      .def(
          "place", [](tiering::ScoreSorter& self, const Scores& scores) { self.place(scores); }, "scores"_a, Release())
      .def("finish", &tiering::ScoreSorter::finish, Release());
  m.def(
      "scatter_rows",
      [](const Table& table, const Ids<"places">& places, int64_t first, const Target& out, Threads threads) {
        tiering::scatter_rows(table, places, first, target_of(out, table), threads);
      },
      "table"_a, "places"_a, "first"_a, "out"_a, "threads"_a = 1, Release());
  m.def(
      "gather_rows",
      [](const Table& table, const Ids<"ids">& ids, const Target& out, Threads threads) {
        tiering::gather_rows(table, ids, target_of(out, table), threads);
      },
      "table"_a, "ids"_a, "out"_a, "threads"_a = 1, Release());
  m.def(
      "partition",
      [](const Ids<"keys">& keys, const Values<const int64_t, "bounds">& bounds, Threads threads) {
        auto parts = tiering::partition_keys(keys, bounds, threads);
        return std::pair(std::move(parts.order), std::move(parts.counts));
      },
      "keys"_a, "bounds"_a, "threads"_a = 1, Release());
  m.def("add_rows", &add_rows, "rows"_a, "nodes"_a, "neighbours"_a, "total"_a, "degree"_a, "threads"_a = 1, Release());
}
