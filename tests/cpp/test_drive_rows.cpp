// The reading of rows from drives, against rows that are copied from the images one byte at a time.
#include <algorithm>
#include <numeric>
#include <set>

#include "drive_lanes.hpp"
#include "emulated_drive.hpp"

using namespace tiering;
using namespace tiering::test;

namespace {

constexpr std::byte kUntouched{0xee};
constexpr int64_t kPages = 400;

/// Rows of `row_bytes` as a layout places them, in units of `pages` pages, or of those of a row.
SsdGeometry geometry_of(const QueueShape& shape, int64_t row_bytes, int64_t first_unit = 0, int64_t pages = 1) {
  const int64_t page = shape.page_bytes, stride = (row_bytes + 3) / 4 * 4;
  const int64_t unit = std::max(pages, (stride + page - 1) / page) * page;
  return {first_unit, stride, unit / stride, unit, page, shape.drives};
}

/// A request for rows at random places of the result, and the result.
struct Request {
  SsdGeometry geometry;
  int64_t row_bytes;
  std::vector<int64_t> rows;
  std::vector<uint32_t> targets;
  uint32_t count;
  std::vector<std::byte> out;

  Request(const SsdGeometry& geometry, int64_t row_bytes, std::vector<int64_t> wanted, uint32_t seed)
      : geometry(geometry), row_bytes(row_bytes), rows(std::move(wanted)), targets(rows.size()) {
    std::sort(rows.begin(), rows.end());
    std::iota(targets.begin(), targets.end(), 0);
    std::shuffle(targets.begin(), targets.end(), std::mt19937(seed));
    count = static_cast<uint32_t>(rows.size());
    out.assign(rows.size() * static_cast<size_t>(row_bytes), kUntouched);
  }

  DriveRowList list() { return {geometry, row_bytes, rows.data(), targets.data(), &count, out.data()}; }

  bool has_row(const DriveRig& rig, size_t i) const {
    const std::byte* const row = &out[targets[i] * static_cast<size_t>(row_bytes)];
    for (int64_t b = 0; b < row_bytes; ++b)
      if (row[b] != rig.byte_at(geometry.place(rows[i]), b)) return false;
    return true;
  }
  bool untouched(size_t i) const {
    const auto begin = out.begin() + static_cast<ptrdiff_t>(targets[i] * static_cast<size_t>(row_bytes));
    return std::all_of(begin, begin + row_bytes, [](std::byte b) { return b == kUntouched; });
  }
};

std::vector<int64_t> draw_rows(const SsdGeometry& geometry, int64_t row_bytes, int64_t pages, int count,
                               uint32_t seed) {
  int64_t rows = 0;
  while (geometry.place(rows).offset + row_bytes <= pages / geometry.num_images * geometry.page_bytes) ++rows;
  std::mt19937 random(seed);
  std::vector<int64_t> drawn(static_cast<size_t>(count));
  for (auto& row : drawn) row = static_cast<int64_t>(random()) % rows;
  return drawn;
}

/// What differs from one request to the next.
struct Case {
  int64_t row_bytes;
  int count, launches = 2;
  uint32_t block_bytes = 512, begin = 0;
  bool in_turn = false;
  int64_t unit_pages = 1;
  bool unordered = false;
};

void reads_rows(const QueueShape& shape, const Case& wanted) {
  const auto [row_bytes, count, launches, block_bytes, begin, in_turn, unit_pages, unordered] = wanted;
  DriveRig rig(shape, block_bytes, kPages, begin);
  if (unordered) rig.disorder();
  const SsdGeometry geometry = geometry_of(shape, row_bytes, 3, unit_pages);
  int64_t pages = 0;
  for (int launch = 0; launch < launches; ++launch) {
    Request request(geometry, row_bytes, draw_rows(geometry, row_bytes, kPages, count, launch), launch);
    read_in_lanes(rig.set(), request.list(), in_turn, [&] { rig.flush(); });
    CHECK(rig.failure == DriveFailure::kNone);
    std::set<std::pair<int64_t, int64_t>> touched;  // image, page
    for (size_t i = 0; i < request.rows.size(); ++i) {
      CHECK(request.has_row(rig, i));
      const auto place = geometry.place(request.rows[i]);
      for (int64_t at = place.offset / shape.page_bytes; at * shape.page_bytes < place.offset + row_bytes; ++at)
        touched.insert({place.image, at});
    }
    pages += static_cast<int64_t>(touched.size());
  }
  // Each page once, but for rows of several pages that come several times.
  CHECK(row_bytes > shape.page_bytes || unit_pages > 1 ? rig.reads() >= pages : rig.reads() == pages);
}

std::vector<int64_t> numbers(int64_t count) {
  std::vector<int64_t> rows(static_cast<size_t>(count));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

/// A bad block spoils the rows of its page; a drive that falls silent ends the launch.
void faults_are_named() {
  const QueueShape shape{.drives = 2, .pairs = 2};
  DriveRig rig(shape);
  Request request(geometry_of(shape, 4096), 4096, numbers(100), 1);
  rig.drives[1]->bad_block = 20 * 8;  // its page 20: page 41 of all
  read_in_lanes(rig.set(), request.list());
  CHECK(rig.failure == DriveFailure::refused(41, 0x281));
  for (size_t i = 0; i < 100; ++i) CHECK(i == 41 ? request.untouched(i) : request.has_row(rig, i));

  rig.drives[0]->silent = true;
  rig.patience = 200'000'000;
  const auto begin = std::chrono::steady_clock::now();
  read_in_lanes(rig.set(), request.list());
  CHECK((rig.failure & 15) == DriveFailure::kLate && rig.failure >> 4 < 4 && (rig.failure >> 4) % 2 == 0);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10));
}

void host_can_stop_it() {
  DriveRig rig({});
  rig.drives[0]->silent = true;
  Request request(geometry_of({}, 100), 100, numbers(50), 1);
  std::thread host([&rig] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    std::atomic_ref(rig.stop).store(1);
  });
  read_in_lanes(rig.set(), request.list());
  host.join();
  CHECK(rig.failure == DriveFailure::given_up(0, DriveFailure::kStopped));
}

void foreign_completion_is_noticed() {
  DriveRig rig({});
  rig.drives[0]->repeats_id = true;
  rig.patience = 300'000'000;
  Request request(geometry_of({}, 4096), 4096, numbers(40), 1);
  read_in_lanes(rig.set(), request.list());
  CHECK(rig.failure == DriveFailure::given_up(0, DriveFailure::kStrange));
  for (size_t i = 0; i < 40; ++i) CHECK(request.untouched(i) || request.has_row(rig, i));
}

/// Patience is for the next completion, not for the launch.
void slow_drive_is_waited_for() {
  const QueueShape shape{.depth = 4};
  DriveRig rig(shape);
  rig.drives[0]->milliseconds = 15;
  rig.patience = 400'000'000;
  Request request(geometry_of(shape, 4096), 4096, numbers(40), 1);
  const auto begin = std::chrono::steady_clock::now();
  read_in_lanes(rig.set(), request.list());
  CHECK(rig.failure == DriveFailure::kNone && request.has_row(rig, 39));
  CHECK(std::chrono::steady_clock::now() - begin > std::chrono::milliseconds(500));
}

void empty_list_asks_for_nothing() {
  DriveRig rig({});
  Request request(geometry_of({}, 100), 100, numbers(8), 1);
  request.count = 0;
  read_in_lanes(rig.set(), request.list());
  CHECK(rig.reads() == 0 && request.untouched(0));
}

}  // namespace

int main() {
  reads_rows({.depth = 8}, {100, 300, 3});
  reads_rows({.drives = 2, .pairs = 2, .depth = 16}, {512, 300, 2, 4096});
  reads_rows({.drives = 3, .pairs = 2, .depth = 4}, {4096, 200});
  reads_rows({.drives = 2, .depth = 16, .page_bytes = 8192}, {2000, 150, 2, 4096});
  reads_rows({.drives = 3, .depth = 8}, {9000, 60});
  reads_rows({.drives = 3, .pairs = 2, .depth = 8}, {.row_bytes = 520, .count = 300, .unit_pages = 4});
  reads_rows({.drives = 2, .depth = 8, .page_bytes = 512}, {.row_bytes = 1432, .count = 120, .unit_pages = 16});
  reads_rows({.drives = 2, .pairs = 2, .depth = 8, .page_bytes = 512}, {700, 100});
  reads_rows({.pairs = 2, .depth = 2, .page_bytes = 512}, {64, 400, 1});
  reads_rows({.drives = 2, .pairs = 2}, {.row_bytes = 512, .count = 60, .in_turn = true});
  reads_rows({.depth = 16}, {.row_bytes = 4096, .count = 60, .launches = 1, .begin = 65536 - 32});
  reads_rows({.depth = 16}, {.row_bytes = 4096, .count = 60, .launches = 1, .begin = 0U - 32});
  reads_rows({.drives = 2, .pairs = 2, .depth = 8},
             {.row_bytes = 520, .count = 200, .unit_pages = 4, .unordered = true});
  reads_rows({.depth = 4}, {.row_bytes = 4096, .count = 50, .launches = 3, .unordered = true});
  faults_are_named();
  host_can_stop_it();
  foreign_completion_is_noticed();
  slow_drive_is_waited_for();
  empty_list_asks_for_nothing();
}
