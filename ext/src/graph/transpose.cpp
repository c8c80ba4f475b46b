// CSC to CSR.
//
// Returns:    for each row u the columns that contain u, ascending, and where in the CSC each entry stood if asked.
// Approach:   the entries of the CSC, column after column, grouped by row: group_edges.hpp. Threads cut the entries
//             evenly, through the middle of a column where need be, so one huge column is shared as well.
#include <tiering/errors.hpp>
#include <tiering/graph.hpp>
#include <tiering/scan_columns.hpp>

#include "group_edges.hpp"

namespace tiering {

CscArrays transpose(const CscView& csc, int64_t num_rows, int threads, bool want_positions) {
  TIERING_EXPECT(num_rows >= 0, "the number of rows must not be negative");
  check_indptr(csc, threads);
  return csc.indices.visit([&](const auto& indices) {
    auto rows = [&](int64_t begin, int64_t end, auto&& f) { scan_indices(indices, num_rows, begin, end, f); };
    auto entries = [&](int64_t begin, int64_t end, auto&& f) {
      scan_columns(csc.indptr, begin, end, [&](int64_t column, int64_t first, int64_t last) {
        for (int64_t k = first; k < last; ++k) f(indices[static_cast<size_t>(k)], column, k);
      });
    };
    return group_edges(csc.num_edges(), num_rows, csc.num_columns(), threads, want_positions, rows, entries);
  });
}

}  // namespace tiering
