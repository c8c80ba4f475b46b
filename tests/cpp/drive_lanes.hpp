// Warps of drive_rows.hpp as threads of the host, one for each lane.
#pragma once

#include <functional>
#include <tiering/nvme/drive_rows.hpp>

namespace tiering::test {

inline constexpr uint32_t kThreadLanes = 4;  // ids of a chunk; some lists are shorter

/// Reads a list, as Drives::read does, by warps of which several run at once, or, with `in_turn`, one after the other.
void read_in_lanes(const DriveSet& drives, const DriveRowList& list, bool in_turn = false,
                   const std::function<void()>& flush = {});

}  // namespace tiering::test
