// Bindings of ext/src/reorder.
#include <nanobind/stl/unique_ptr.h>

#include "ndarray_types.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace tiering::bind;
using tiering::IdSpan;

namespace {

using Offsets = std::span<const int64_t>;

/// The window whose first entry is `first` and whose bytes are `out`, items of item_bytes.
tiering::RelabelWindow window_of(int64_t first, int64_t first_column, Offsets starts, std::span<std::byte> out,
                                 int64_t item_bytes) {
  const auto bytes = static_cast<int64_t>(out.size());
  TIERING_EXPECT(bytes % item_bytes == 0, "out: expected contiguous uint8 array of whole items, found ", bytes,
                 " bytes");
  return {first, first + bytes / item_bytes, first_column, starts, out.data()};
}

int64_t id_bytes(int64_t num_src) { return tiering::needs_wide_ids(num_src) ? 8 : 4; }

void place_indices(IdSpan indices, int64_t first_entry, Offsets indptr, IdSpan columns, int64_t num_src, int64_t first,
                   int64_t first_column, Offsets starts, std::span<std::byte> out, int threads) {
  const tiering::OldEntries chunk{indptr, columns, first_entry, first_entry + indices.size};
  tiering::place_indices(indices, num_src, chunk, window_of(first, first_column, starts, out, id_bytes(num_src)),
                         threads);
}

void place_values(tiering::RowsView values, int64_t first_entry, Offsets indptr, IdSpan columns, int64_t first,
                  int64_t first_column, Offsets starts, std::span<std::byte> out, int threads) {
  TIERING_EXPECT(values.row_bytes > 0, "values: expected values of a byte or more");
  const tiering::OldEntries chunk{indptr, columns, first_entry, first_entry + values.num_rows};
  tiering::place_values(values.data, values.row_bytes, chunk,
                        window_of(first, first_column, starts, out, values.row_bytes), threads);
}

void rename_sources(std::span<std::byte> entries, IdSpan src_old_to_new, int64_t first_source, int64_t num_src,
                    int threads) {
  TIERING_EXPECT(first_source >= 0 && first_source <= num_src - src_old_to_new.size,
                 "src_old_to_new: expected new ids of sources below num_src, ", num_src);
  const auto window = window_of(0, 0, {}, entries, id_bytes(num_src));
  tiering::rename_sources(window.out, window.end, {src_old_to_new, first_source, num_src}, threads);
}

void add_rows(tiering::NumberRows rows, IdSpan nodes, IdSpan neighbors, Matrix<float> total, std::span<int64_t> degree,
              int threads) {
  TIERING_EXPECT(total.columns == rows.dim, "total: expected sums of ", rows.dim, " entries as rows have, found ",
                 total.columns);
  TIERING_EXPECT(static_cast<int64_t>(degree.size()) == total.rows, "degree: expected one for each of ", total.rows,
                 " nodes of total, found ", degree.size());
  tiering::add_rows(rows, nodes, neighbors, {total.entries.data(), degree.data(), total.rows}, threads);
}

auto partition(IdSpan keys, Offsets bounds, int threads) {
  auto parts = tiering::partition_keys(keys, bounds, threads);
  return std::pair(std::move(parts.order), std::move(parts.counts));
}

}  // namespace

void bind_reorder(nb::module_& m) {
  define(m, "relabel_indptr", &tiering::relabel_indptr, "indptr"_a, "dst_old_to_new"_a, "threads"_a = 1);
  define(m, "place_indices", &place_indices, "indices"_a, "first_entry"_a, "indptr"_a, "dst_old_to_new"_a, "num_src"_a,
         "first"_a, "first_column"_a, "starts"_a, "out"_a, "threads"_a = 1);
  define(m, "place_values", &place_values, "values"_a, "first_entry"_a, "indptr"_a, "dst_old_to_new"_a, "first"_a,
         "first_column"_a, "starts"_a, "out"_a, "threads"_a = 1);
  define(m, "rename_sources", &rename_sources, "entries"_a, "src_old_to_new"_a, "first_source"_a, "num_src"_a,
         "threads"_a = 1);
  define(m, "sort_by_score", &tiering::sort_by_score, "scores"_a, "threads"_a = 1);
  nb::class_<tiering::ScoreSorter> sorter(m, "ScoreSorter");
  sorter.def(nb::new_(&tiering::ScoreSorter::make), "size"_a, "threads"_a = 1)
      .def("finish", &tiering::ScoreSorter::finish, Release());
  define(sorter, "count", &tiering::ScoreSorter::count, "scores"_a);
  define(sorter, "place", &tiering::ScoreSorter::place, "scores"_a);
  define(m, "scatter_rows", &tiering::scatter_rows, "table"_a, "places"_a, "first"_a, "out"_a, "threads"_a = 1);
  define(m, "gather_rows", &tiering::gather_rows, "table"_a, "ids"_a, "out"_a, "threads"_a = 1);
  define(m, "partition", &partition, "keys"_a, "bounds"_a, "threads"_a = 1);
  define(m, "add_rows", &add_rows, "rows"_a, "nodes"_a, "neighbors"_a, "total"_a, "degree"_a, "threads"_a = 1);
}
