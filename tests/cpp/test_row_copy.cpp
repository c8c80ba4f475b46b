// How a warp shares rows: every word once, as few lines as there are, from every tier; run lane by lane on the CPU.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <set>
#include <tiering/device/row_copy.hpp>
#include <tiering/device/row_table.hpp>
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

/// A row is asked for line by line: one request more than it has lines, where the shift goes round.
void test_lines() {
  for (const int64_t row_bytes : {1024, 1536, 2408, 4096, 4100})
    for (uint64_t address = 0; address < 128; address += 4) {
      const RowCopy copy = RowCopy::plan(row_bytes, address);
      const uint64_t end = address + static_cast<uint64_t>(row_bytes);
      const auto lines = static_cast<int64_t>((end + kDeviceLineBytes - 1) / kDeviceLineBytes);
      const int64_t shifted = requests(copy, address, copy.shift(address)), plain = requests(copy, address, 0);
      CHECK(shifted <= lines + 1 && shifted <= plain + 1);
      if (address % 128 == 0) CHECK(shifted == lines);
      if (copy.steps > 4 && address % 128 != 0) CHECK(shifted < plain);
    }
}

void test_lanes_of_short_rows() {
  CHECK(RowCopy::plan(128, 0).lanes == 8);
  CHECK(RowCopy::plan(96, 0).lanes == 8 && RowCopy::plan(96, 0).steps == 1);
  CHECK(RowCopy::plan(4, 0).lanes == 1 && RowCopy::plan(4, 0).words == 1);
  CHECK(RowCopy::plan(2408, 0).width == 8 && RowCopy::plan(2408, 0).lanes == 32);
  CHECK(RowCopy::plan(0, 0).words == 0 && RowCopy::plan(0, 0).steps == 0);
}

/// A thread that goes on by strides sees what dividing every item would have told it.
void test_strides() {
  for (const int64_t row_bytes : {4, 512, 1536, 2408, 5000})
    for (const int32_t stride : {1, 3, 7, 64, 1000}) {
      const RowCopy copy = RowCopy::plan(row_bytes, 0);
      RowStep here = copy.at(5);
      for (int32_t item = 5; item < 5000; item += stride) {
        CHECK(here.row == item / copy.steps && here.step == item % copy.steps);
        here = copy.after(here, copy.at(stride));
      }
    }
}

/// Rows of all tiers in request order, copied as a warp would, word by word.
void test_rows_of_every_tier() {
  std::mt19937_64 random(7);
  for (const int64_t row_bytes : {4, 12, 128, 602, 1536, 2408})
    for (const int64_t peers : {1, 3}) {
      const int64_t sizes[] = {20, 31, 40, 50};
      RowTable table;
      table.row_bytes = row_bytes;
      table.ranges = {20, 51, 91, 141};
      table.num_peers = peers;
      std::vector<std::byte> content(static_cast<size_t>(141 * row_bytes));
      for (auto& byte : content) byte = static_cast<std::byte>(random());
      const std::byte* const all = content.data();
      table.local = all;
      std::vector<std::vector<std::byte>> shares(static_cast<size_t>(peers));
      for (int64_t i = 0; i < sizes[1]; ++i) {
        auto& share = shares[static_cast<size_t>(i % peers)];
        share.insert(share.end(), all + (20 + i) * row_bytes, all + (21 + i) * row_bytes);
      }
      for (size_t p = 0; p < shares.size(); ++p) table.peers[p] = shares[p].data();
      table.host = all + 51 * row_bytes;
      std::vector<int64_t> ids(300), slots(300, -1);
      std::vector<std::byte> staged, out(ids.size() * static_cast<size_t>(row_bytes));
      for (size_t i = 0; i < ids.size(); ++i) {
        ids[i] = static_cast<int64_t>(random() % 141);
        if (ids[i] < 91) continue;
        slots[i] = static_cast<int64_t>(staged.size()) / row_bytes;
        staged.insert(staged.end(), all + ids[i] * row_bytes, all + (ids[i] + 1) * row_bytes);
      }
      table.staged = staged.data();
      const RowCopy copy = RowCopy::plan(row_bytes, table.alignment_bits() | reinterpret_cast<uintptr_t>(out.data()));
      for (size_t i = 0; i < ids.size(); ++i) {
        CHECK(table.contains(ids[i]));
        const std::byte* const row = table.row(ids[i], slots[i]);
        const int32_t shift = copy.shift(reinterpret_cast<uintptr_t>(row));
        for (int32_t step = 0; step < copy.steps; ++step)
          for (int lane = 0; lane < copy.lanes; ++lane)
            if (const int32_t word = copy.word(step, lane, shift); word >= 0)
              std::memcpy(out.data() + static_cast<int64_t>(i) * row_bytes + word * copy.width, row + word * copy.width,
                          static_cast<size_t>(copy.width));
      }
      for (size_t i = 0; i < ids.size(); ++i)
        CHECK(std::memcmp(out.data() + static_cast<int64_t>(i) * row_bytes, all + ids[i] * row_bytes,
                          static_cast<size_t>(row_bytes)) == 0);
      CHECK(!table.contains(141) && !table.contains(-1));
    }
}

}  // namespace

int main() {
  test_every_word_once();
  test_published_requests();
  test_lines();
  test_lanes_of_short_rows();
  test_strides();
  test_rows_of_every_tier();
  std::cout << "test_row_copy: ok\n";
  return 0;
}
