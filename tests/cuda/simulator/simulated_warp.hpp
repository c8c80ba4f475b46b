// A warp of one lane, by which the simulator runs drive_rows.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <tiering/nvme/drive_rows.hpp>

#include "../../cpp/host_link.hpp"

namespace simulator {

struct WholeWarp {
  using Link = tiering::test::HostLink;
  static constexpr uint32_t kLanes = 1;

  uint32_t lane() const { return 0; }
  uint32_t number() const { return blockIdx.x; }
  uint32_t ballot(bool vote) const { return vote ? 1 : 0; }
  uint32_t count(uint32_t votes) const { return votes; }
  uint32_t lowest(uint32_t votes) const { return (votes & 1) != 0 ? 0 : 1; }
  uint32_t shuffle(uint32_t value, uint32_t) const { return value; }
  void sync() const {}
  void copy(const tiering::PieceCopy (&copies)[tiering::PieceCopy::kTogether]) const {
    for (const auto& copy : copies) std::copy_n(copy.from, copy.bytes, copy.to);
  }
};

}  // namespace simulator
