// How a warp shares rows: every word once, as few lines as there are; run lane by lane on the CPU.
#include <algorithm>
#include <set>
#include <tiering/device/row_copy.hpp>
#include <vector>

#include "check.hpp"

using namespace tiering;

namespace {

/// Line requests of a row: the lines of each step, summed.
int64_t requests(const RowCopy& copy, uint64_t address, int32_t shift) {
  int64_t count = 0;
  for (int32_t step = 0; step < copy.steps; ++step) {
    std::set<uint64_t> lines;
    for (int lane = 0; lane < copy.lanes; ++lane)
      if (const int32_t word = copy.word(step, lane, shift); word >= 0)
        lines.insert((address + static_cast<uint64_t>(word * copy.width)) / kDeviceLineBytes);
    count += static_cast<int64_t>(lines.size());
  }
  return count;
}

void test_every_word_once() {
  for (const int64_t row_bytes : {1, 2, 6, 12, 64, 100, 128, 512, 602, 1204, 1536, 2408, 4096, 5000})
    for (const uint64_t address : {0, 2, 4, 8, 16, 48, 100, 112, 120, 127}) {
      const RowCopy copy = RowCopy::plan(row_bytes, address);
      CHECK(row_bytes % copy.width == 0 && address % static_cast<uint64_t>(copy.width) == 0);
      CHECK(copy.width == 16 || row_bytes % (2 * copy.width) != 0 ||
            address % static_cast<uint64_t>(2 * copy.width) != 0);
      std::vector<int> seen(static_cast<size_t>(copy.words), 0);
      for (int32_t step = 0; step < copy.steps; ++step)
        for (int lane = 0; lane < copy.lanes; ++lane)
          if (const int32_t word = copy.word(step, lane, copy.shift(address)); word >= 0)
            ++seen[static_cast<size_t>(word)];
      CHECK(std::all_of(seen.begin(), seen.end(), [](int times) { return times == 1; }));
    }
}

/// Requests of a row of a dense table, on average.
double requests_of_table(int64_t row_bytes) {
  const RowCopy copy = RowCopy::plan(row_bytes, 0);
  int64_t count = 0;
  const int64_t rows = kDeviceLineBytes;  // then the places within a line come round
  for (int64_t row = 0; row < rows; ++row) {
    const auto address = static_cast<uint64_t>(row * row_bytes);
    count += requests(copy, address, copy.shift(address));
  }
  return static_cast<double>(count) / static_cast<double>(rows);
}

/// The example of the source: the second row of 480 bytes, read 4 bytes a lane, takes 8 requests, and 5 where lanes are
/// shifted. Rows of other lengths: one request more than the lines that they touch only where the shift goes round.
void test_published_requests() {
  const RowCopy copy = RowCopy::plan(480, sizeof(float));
  CHECK(copy.width == 4 && requests(copy, 480, 0) == 8 && requests(copy, 480, copy.shift(480)) == 5);
  for (const auto& [row_bytes, expected] : {std::pair{600, 5.875}, std::pair{1000, 8.75}, std::pair{1100, 9.9375}})
    CHECK(requests_of_table(row_bytes) == expected);
}

}  // namespace

int main() {
  test_every_word_once();
  test_published_requests();
  std::cout << "test_row_copy: ok\n";
  return 0;
}
