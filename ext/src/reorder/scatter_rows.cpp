// Rows of a table to given places.
//
// Approach:   threads own equal shares of the table's rows. Rows for places outside `out` are passed over, so
//             that a table can be streamed past a window of its permutation. Rows of whole cache lines are written
//             past the caches: a window is much larger, and its lines need not be read to be overwritten.
// Cost:       reads and writes row_bytes per row that is placed.
#include <cstring>
#include <tiering/errors.hpp>
#include <tiering/line_writer.hpp>
#include <tiering/parallel.hpp>
#include <tiering/reorder.hpp>

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

/// Calls copy(to, from) for the rows that have a place in `out`.
template <typename Id, typename Copy>
void place_rows(const RowsView& table, std::span<const Id> places, int64_t first, const RowsTarget& out, int threads,
                Copy&& copy) {
  const auto room = static_cast<uint64_t>(out.num_rows);
  for_cuts(threads, table.num_rows, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t place = wrapped_difference(places[static_cast<size_t>(i)], first);
      if (static_cast<uint64_t>(place) < room)
        copy(out.data + place * out.stride_bytes, table.data + i * table.row_bytes);
    }
    stream_fence();
  });
}

}  // namespace

void scatter_rows(const RowsView& table, const IdSpan& places, int64_t first, const RowsTarget& out, int threads) {
  TIERING_EXPECT(table.num_rows == places.size, "there are ", places.size, " places for ", table.num_rows, " rows");
  const auto bytes = static_cast<size_t>(table.row_bytes);
  places.visit([&](const auto& span) {
    auto place = [&](auto&& copy) { place_rows(table, span, first, out, threads, copy); };
    if (in_lines(table, out))
      place([bytes](std::byte* to, const std::byte* from) { stream_lines(to, from, bytes); });
    else if (bytes == 4)
      place([](std::byte* to, const std::byte* from) { std::memcpy(to, from, 4); });
    else if (bytes == 8)
      place([](std::byte* to, const std::byte* from) { std::memcpy(to, from, 8); });
    else
      place([bytes](std::byte* to, const std::byte* from) { std::memcpy(to, from, bytes); });
  });
}

}  // namespace tiering
