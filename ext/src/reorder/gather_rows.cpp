// Rows of a table in a given order.
//
// Approach:   threads own equal shares of the output rows; rows a few places ahead are prefetched so that
//             a core waits for several rows at once.
// Cost:       reads and writes row_bytes per id.
#include <cstring>
#include <tiering/errors.hpp>
#include <tiering/parallel.hpp>
#include <tiering/reorder.hpp>
#include <tiering/scan_columns.hpp>

namespace tiering {
namespace {

constexpr int64_t kRowsAhead = 8;  // rows fetched ahead

template <typename Id>
void gather_share(const RowsView& table, std::span<const Id> ids, const RowsTarget& out, int64_t begin, int64_t end) {
  const auto rows = static_cast<uint64_t>(table.num_rows);
  for (int64_t i = begin; i < end; ++i) {
    if (i + kRowsAhead < end) {
      const auto ahead = static_cast<uint64_t>(ids[static_cast<size_t>(i + kRowsAhead)]);
      if (ahead < rows) prefetch_row(table.data + static_cast<int64_t>(ahead) * table.row_bytes, table.row_bytes);
    }
    const int64_t id = ids[static_cast<size_t>(i)];
    TIERING_EXPECT(static_cast<uint64_t>(id) < rows, "ids[", i, "] is ", id, ", outside the table's ", table.num_rows,
                   " rows");
    std::memcpy(out.data + i * out.stride_bytes, table.data + id * table.row_bytes,
                static_cast<size_t>(table.row_bytes));
  }
}

}  // namespace

void gather_rows(const RowsView& table, const IdSpan& ids, const RowsTarget& out, int threads) {
  TIERING_EXPECT(out.num_rows == ids.size, "out has ", out.num_rows, " rows for ", ids.size, " ids");
  ids.visit([&](const auto& span) {
    for_cuts(threads, ids.size, [&](int64_t begin, int64_t end) { gather_share(table, span, out, begin, end); });
  });
}

}  // namespace tiering
