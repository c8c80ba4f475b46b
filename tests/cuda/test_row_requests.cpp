// Requests for rows, in the order of addresses and as they come, against the same rows found on the CPU. Without a device
// it is skipped (exit 77).
#include <algorithm>
#include <cstring>
#include <random>
#include <tiering/cuda/row_requests.hpp>
#include <vector>

#include "../cpp/check.hpp"
#include "device.hpp"

using namespace tiering;
using namespace tiering::test;

namespace {

constexpr int64_t kRowBytes = 12, kSlots = 400;
constexpr TierRanges kRanges{50, 90, 200, 300};
constexpr std::byte kLeft{0xee};

/// How the rows of the ssd tier are asked for.
enum class Ssd { missing, listed, by_rank, by_slot };

/// Rows in pinned memory, which stands for all tiers; row r is filled with r, a slot with its number.
struct Rows {
  explicit Rows(Ssd ssd) : memory((kRanges.num_rows + kSlots) * kRowBytes) {
    for (int64_t row = 0; row < kRanges.num_rows + kSlots; ++row)
      std::memset(memory.data() + row * kRowBytes, static_cast<int>(row % 251), kRowBytes);
    auto at = [&](int64_t row) { return memory.data() + row * kRowBytes; };
    table.ranges = kRanges;
    table.row_bytes = kRowBytes;
    table.local = at(0);
    table.peers[0] = at(kRanges.gpu_end);
    table.num_peers = 1;
    table.host = at(kRanges.peer_end);
    if (ssd == Ssd::by_rank) table.staged = at(kRanges.cpu_end);
    if (ssd == Ssd::by_slot) table.staged = at(kRanges.num_rows);
  }

  cuda::PinnedMemory memory;
  RowTable table;
};

struct Request {
  explicit Request(size_t count) : ids(bytes(count, 8)), slots(bytes(count, 4)), out(bytes(count, kRowBytes)) {}
  static int64_t bytes(size_t count, int64_t each) { return static_cast<int64_t>(count + 1) * each; }

  cuda::PinnedMemory ids, slots, out;
};

class Check {
 public:
  Check(Ssd ssd, bool by_address) : ssd_(ssd), by_address_(by_address), rows_(ssd) {}

  void run(size_t count, std::mt19937_64& random) {
    Request given(count);
    auto* const ids = given.ids.as<int64_t>();
    auto* const slots = given.slots.as<uint32_t>();
    for (size_t i = 0; i < count; ++i) {
      ids[i] = static_cast<int64_t>(random() % 320) - 10;
      slots[i] = random() % 5 == 0 ? kNoSlot : static_cast<uint32_t>(random() % kSlots);
    }
    std::memset(given.out.data(), static_cast<int>(kLeft), static_cast<size_t>(given.out.size()));
    const cuda::PinnedMemory listed(given.ids.size()), places(given.slots.size()), number(4), first_bad(8);
    *first_bad.as<unsigned long long>() = ~0ULL;
    *number.as<uint32_t>() = 0;
    cuda::RowRequest request{.ids = ids, .count = static_cast<int64_t>(count)};
    request.first_bad = first_bad.as<unsigned long long>();
    if (ssd_ == Ssd::by_slot) request.slots = slots;
    if (ssd_ == Ssd::listed) {
      request.listed = listed.as<int64_t>();
      request.listed_places = places.as<uint32_t>();
      request.num_listed = number.as<uint32_t>();
    }
    gatherer_.prepare(rows_.table, request, by_address_, stream_.get());
    gatherer_.gather(rows_.table, given.out.data(), {.max_sms = 2}, stream_.get());
    stream_.synchronize();
    check_rows(given, count, *first_bad.as<unsigned long long>());
    if (ssd_ == Ssd::listed)
      check_list(given, count, listed.as<int64_t>(), places.as<uint32_t>(), *number.as<uint32_t>());
    CHECK(gatherer_.totals() == totals_);
  }

 private:
  /// Where in the memory the row of an id lies; -1: nowhere.
  int64_t row_of(int64_t id, uint32_t slot) const {
    if (id < 0 || id >= kRanges.num_rows) return -1;
    if (id < kRanges.cpu_end || ssd_ == Ssd::by_rank) return id;
    return ssd_ == Ssd::by_slot && slot != kNoSlot ? kRanges.num_rows + int64_t{slot} : -1;
  }

  void check_rows(const Request& given, size_t count, unsigned long long first_bad) {
    unsigned long long first = ~0ULL;
    for (size_t i = count; i-- > 0;) {
      const int64_t id = given.ids.as<int64_t>()[i], row = row_of(id, given.slots.as<uint32_t>()[i]);
      if (id < 0 || id >= kRanges.num_rows)
        first = i;
      else
        ++totals_[static_cast<size_t>(kRanges.tier_of(id))];
      const std::byte expected = row < 0 ? kLeft : static_cast<std::byte>(row % 251);
      const std::byte* const found = given.out.data() + static_cast<int64_t>(i) * kRowBytes;
      CHECK(std::all_of(found, found + kRowBytes, [&](std::byte byte) { return byte == expected; }));
    }
    CHECK(first == first_bad);
  }

  void check_list(const Request& given, size_t count, const int64_t* listed, const uint32_t* places, uint32_t number) {
    std::vector<std::pair<int64_t, uint32_t>> expected;
    for (size_t i = 0; i < count; ++i)
      if (const int64_t id = given.ids.as<int64_t>()[i]; id >= kRanges.cpu_end && id < kRanges.num_rows)
        expected.emplace_back(id - kRanges.cpu_end, static_cast<uint32_t>(i));
    std::stable_sort(expected.begin(), expected.end());
    CHECK(number == expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      CHECK(listed[i] == expected[i].first);
      CHECK(places[i] == expected[i].second);
    }
  }

  Ssd ssd_;
  bool by_address_;
  Rows rows_;
  cuda::GpuStream stream_;
  cuda::RequestGatherer gatherer_;
  std::array<int64_t, kNumTiers> totals_{};
};

}  // namespace

int main() {
  if (no_device("test_row_requests")) return kSkipped;
  std::mt19937_64 random(3);
  for (const Ssd ssd : {Ssd::missing, Ssd::listed, Ssd::by_rank, Ssd::by_slot})
    for (const bool by_address : {true, false}) {
      if (ssd == Ssd::listed && !by_address) continue;
      Check check(ssd, by_address);
      for (const size_t count : {size_t{0}, size_t{1}, size_t{5000}, size_t{40}, size_t{0}}) check.run(count, random);
    }
  std::cout << "test_row_requests: ok\n";
  return 0;
}
