// Rows of a table to given places.
//
// Approach:   threads own equal shares of the table's rows. Rows for places outside `out` are passed over, so
//             that a table can be streamed past a window of its permutation.
// Cost:       reads and writes row_bytes per row that is placed.
#include <cstring>
#include <tiering/errors.hpp>
#include <tiering/parallel.hpp>
#include <tiering/reorder.hpp>

namespace tiering {

void scatter_rows(const RowsView& table, const IdSpan& places, const RowsTarget& out, int threads) {
  TIERING_EXPECT(table.num_rows == places.size, "there are " + std::to_string(places.size) + " places for " +
                                                    std::to_string(table.num_rows) + " rows");
  const auto room = static_cast<uint64_t>(out.num_rows);
  places.visit([&](const auto& span) {
    run_team(threads, [&](int t) {
      const auto [begin, end] = even_cut(places.size, threads, t);
      for (int64_t i = begin; i < end; ++i) {
        const int64_t place = span[static_cast<size_t>(i)];
        if (static_cast<uint64_t>(place) < room)
          std::memcpy(out.data + place * out.stride_bytes, table.data + i * table.row_bytes,
                      static_cast<size_t>(table.row_bytes));
      }
    });
  });
}

}  // namespace tiering
