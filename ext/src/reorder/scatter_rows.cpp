// Rows of a table to given places.
//
// Approach:   threads own equal shares of the table's rows. Rows for places outside `out` are passed over, so
//             that a table can be streamed past a window of its permutation. Rows of whole cache lines are written
//             past the caches: a window is much larger, and its lines need not be read to be overwritten.
// Cost:       reads and writes row_bytes per row that is placed.
#include <cstring>
#include <string>
#include <tiering/errors.hpp>
#include <tiering/parallel.hpp>
#include <tiering/reorder.hpp>
#include <tiering/stream_store.hpp>

namespace tiering {
namespace {

/// Rows of this many lines go past the caches.
constexpr int64_t kFewestLines = 4;

bool in_lines(const RowsView& table, const RowsTarget& out) {
  const auto line = static_cast<int64_t>(kLineBytes);
  const auto misaligned = reinterpret_cast<uintptr_t>(out.data) | static_cast<uintptr_t>(out.stride_bytes) |
                          static_cast<uintptr_t>(table.row_bytes);
  return table.row_bytes >= kFewestLines * line && misaligned % kLineBytes == 0 &&
         reinterpret_cast<uintptr_t>(table.data) % 16 == 0;
}

/// Copies the rows of a table, in lines.
template <typename Id>
void stream_rows(const RowsView& table, std::span<const Id> places, int64_t first, const RowsTarget& out,
                 int threads) {
  const auto room = static_cast<uint64_t>(out.num_rows);
  run_team(threads, [&](int t) {
    const auto [begin, end] = even_cut(table.num_rows, threads, t);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t place = wrapped_difference(places[static_cast<size_t>(i)], first);
      if (static_cast<uint64_t>(place) < room)
        stream_lines(out.data + place * out.stride_bytes, table.data + i * table.row_bytes,
                     static_cast<size_t>(table.row_bytes));
    }
    stream_fence();
  });
}

/// kRowBytes is the length of the rows, or 0 where it is known only now.
template <int64_t kRowBytes, typename Id>
void scatter(const RowsView& table, std::span<const Id> places, int64_t first, const RowsTarget& out,
             int threads) {
  const auto room = static_cast<uint64_t>(out.num_rows);
  const int64_t row_bytes = kRowBytes ? kRowBytes : table.row_bytes;
  run_team(threads, [&](int t) {
    const auto [begin, end] = even_cut(table.num_rows, threads, t);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t place = wrapped_difference(places[static_cast<size_t>(i)], first);
      if (static_cast<uint64_t>(place) < room)
        std::memcpy(out.data + place * out.stride_bytes, table.data + i * row_bytes,
                    static_cast<size_t>(row_bytes));
    }
  });
}

}  // namespace

void scatter_rows(const RowsView& table, const IdSpan& places, int64_t first, const RowsTarget& out,
                  int threads) {
  TIERING_EXPECT(table.num_rows == places.size, "there are " + std::to_string(places.size) + " places for " +
                                                    std::to_string(table.num_rows) + " rows");
  places.visit([&](const auto& span) {
    if (in_lines(table, out))
      stream_rows(table, span, first, out, threads);
    else if (table.row_bytes == 4)
      scatter<4>(table, span, first, out, threads);
    else if (table.row_bytes == 8)
      scatter<8>(table, span, first, out, threads);
    else
      scatter<0>(table, span, first, out, threads);
  });
}

}  // namespace tiering
