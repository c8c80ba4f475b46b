// Rows of a table in a given order, and to given places. Threads own equal shares of what they read in order. Rows
// whose place lies outside are passed over, so that a table can be streamed past a window of its permutation; rows of
// whole cache lines are written past the caches, as a window is much larger.
#include <tiering/line_writer.hpp>
#include <tiering/parallel.hpp>
#include <tiering/reorder.hpp>
#include <tiering/scan_columns.hpp>

namespace tiering {
namespace {

constexpr int64_t kRowsAhead = 8;    // rows fetched ahead, so that a core waits for several at once
constexpr int64_t kFewestLines = 4;  // rows of so many cache lines are written past the caches

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

void gather_rows(const RowsView& table, const IdSpan& ids, const RowsTarget& out, int threads) {
  TIERING_EXPECT(out.num_rows == ids.size, "out has ", out.num_rows, " rows for ", ids.size, " ids");
  ids.visit([&](const auto& span) {
    for_cuts(threads, ids.size, [&](int64_t begin, int64_t end) { gather_share(table, span, out, begin, end); });
  });
}

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
