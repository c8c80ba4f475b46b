#include "drive_lanes.hpp"

#include <algorithm>
#include <barrier>
#include <bit>
#include <memory>
#include <thread>
#include <vector>

#include "host_link.hpp"

namespace tiering::test {
namespace {

struct Meeting {
  std::barrier<> barrier{kThreadLanes};
  uint32_t values[kThreadLanes] = {};
};

struct ThreadWarp {
  using Link = HostLink;
  static constexpr uint32_t kLanes = kThreadLanes;

  Meeting& meeting;
  uint32_t own_lane, own_number;

  uint32_t lane() const { return own_lane; }
  uint32_t number() const { return own_number; }
  uint32_t count(uint32_t votes) const { return static_cast<uint32_t>(std::popcount(votes)); }
  uint32_t lowest(uint32_t votes) const { return static_cast<uint32_t>(std::countr_zero(votes)); }
  void sync() const { meeting.barrier.arrive_and_wait(); }
  uint32_t ballot(bool vote) const {
    uint32_t votes = 0;
    for (uint32_t other = 0; other < kLanes; ++other) votes |= shuffle(vote ? 1 : 0, other) << other;
    return votes;
  }
  uint32_t shuffle(uint32_t value, uint32_t from) const {
    meeting.values[own_lane] = value;
    sync();
    const uint32_t found = meeting.values[from];
    sync();
    return found;
  }
  void copy(const PieceCopy (&copies)[PieceCopy::kTogether]) const {
    for (const auto& copy : copies)
      for (uint32_t at = own_lane; at < copy.bytes; at += kLanes) copy.to[at] = copy.from[at];
  }
};

/// Runs a kernel's body by all warps.
template <typename Body>
void run_warps(const DriveSet& drives, bool in_turn, const Body& body) {
  std::vector<std::unique_ptr<Meeting>> meetings;
  std::vector<std::jthread> lanes;
  for (uint32_t warp = 0; warp < drives.num_drives * drives.pairs; ++warp) {
    meetings.push_back(std::make_unique<Meeting>());
    for (uint32_t lane = 0; lane < kThreadLanes; ++lane)
      lanes.emplace_back([&body, &meeting = *meetings.back(), lane, warp] { body(ThreadWarp{meeting, lane, warp}); });
    if (in_turn) lanes.clear();
  }
}

}  // namespace

void read_in_lanes(const DriveSet& drives, const DriveRowList& list, bool in_turn, const std::function<void()>& flush) {
  const RowPieces pieces(list.geometry, list.row_bytes);
  std::fill_n(drives.cursors, drives.num_drives, 0);
  const auto read = [&](const ThreadWarp& warp) { drive_rows(warp, drives, list, pieces); };
  const auto copy = [&](const ThreadWarp& warp) { copy_drive_rows(warp, drives, list, pieces); };
  do {
    if (drives.rest != nullptr) *drives.rest = ~0ULL;
    run_warps(drives, in_turn, read);
    if (drives.rest == nullptr) return;
    flush();
    run_warps(drives, in_turn, copy);
  } while (*drives.rest == 0 && *drives.failure >= DriveFailure::refused(0, 0));
}

}  // namespace tiering::test
