// How the lanes of a warp share the bytes of a row: pure arithmetic, the same on GPU and CPU.
//
// Approach:   accesses are as wide as the alignment of all rows allows, 16 bytes at most. Rows shorter than what 32 lanes
//             read at once are shared by fewer lanes, so that a warp takes several. Over PCIe and NVLink memory is read
//             in lines of 128 bytes, and a warp whose 512 bytes begin within a line asks for five lines instead of four.
//             So where a row takes several steps and does not begin with a line, the lanes are shifted in a circle: lane
//             0 of every step stands at the begin of a line, and the lanes that would stand before the row take its
//             last words.
// Source:     circular shift: Min et al., "Large Graph Convolutional Network Training with GPU-Oriented Data
//             Communication Architecture" (VLDB'21).
#pragma once

#include <cstdint>

namespace tiering {

inline constexpr int64_t kDeviceLineBytes = 128;
inline constexpr int kWarpLanes = 32;

struct RowCopy {
  int width = 1;      ///< bytes of an access: 16, 8, 4, 2 or 1
  int lanes = 1;      ///< lanes that share a row: a power of two up to 32
  int64_t words = 0;  ///< accesses of a row
  int64_t steps = 0;  ///< accesses of a lane

  /// For rows of `row_bytes`, with all addresses and strides or-ed in `bits`.
  static constexpr RowCopy plan(int64_t row_bytes, uint64_t bits) {
    RowCopy copy;
    bits |= static_cast<uint64_t>(row_bytes);
    while (copy.width < 16 && (bits & static_cast<uint64_t>(copy.width)) == 0) copy.width *= 2;
    copy.words = row_bytes / copy.width;
    while (copy.lanes < kWarpLanes && copy.lanes < copy.words) copy.lanes *= 2;
    copy.steps = (copy.words + copy.lanes - 1) / copy.lanes;
    return copy;
  }

  /// Words between the begin of the line that a row at `address` begins in, and the row; a step of narrow accesses is
  /// less than a line. 0 where a row takes one step. Less than `words`.
  constexpr int64_t shift(uint64_t address) const {
    const int64_t step = int64_t{lanes} * width, line = step < kDeviceLineBytes ? step : kDeviceLineBytes;
    return steps > 1 ? static_cast<int64_t>(address % static_cast<uint64_t>(line)) / width : 0;
  }

  /// The word that a lane takes in a step; -1 if there is none for it.
  constexpr int64_t word(int64_t step, int lane, int64_t shift) const {
    const int64_t at = step * lanes + lane;
    if (at >= words) return -1;
    return at < shift ? words - shift + at : at - shift;
  }
};

}  // namespace tiering
