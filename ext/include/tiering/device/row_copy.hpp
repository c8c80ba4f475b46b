// How the lanes of a warp share the bytes of a row: pure arithmetic, the same on GPU and CPU. Accesses are as wide as
// the alignment of all rows allows; short rows are shared by fewer lanes, so that a warp takes several. Memory is read
// in lines of 128 bytes, so where a row takes several steps and does not begin with a line, the lanes are shifted in a
// circle: lane 0 of every step stands at the begin of a line, and the words before the first line are taken last (Min
// et al., VLDB'21).
#pragma once

#include <cstdint>
#include <tiering/device/qualifiers.hpp>

namespace tiering {

inline constexpr int kDeviceLineBytes = 128;
inline constexpr int kWarpLanes = 32;

/// A place in the sequence of all steps of all rows, or a distance in it.
struct RowStep {
  int32_t row = 0, step = 0;
};

/// In 32 bits, because a gather from the GPU's own memory is soon bound by its instructions: rows of less than 2 GiB,
/// and at most kMostRows at once.
struct RowCopy {
  static constexpr int64_t kMostRows = int64_t{1} << 30;

  int width = 1;             ///< bytes of an access: 16, 8, 4, 2 or 1
  int width_bits = 0;        ///< its logarithm
  int lanes = 1;             ///< lanes that share a row: a power of two up to 32
  int32_t words = 0;         ///< accesses of a row
  int32_t steps = 0;         ///< accesses of a lane
  uint32_t within_line = 0;  ///< the bits of an address that a shift clears; 0 where a row takes one step

  /// For rows of `row_bytes`, with all addresses and strides or-ed in `bits`.
  static constexpr RowCopy plan(int64_t row_bytes, uint64_t bits) {
    RowCopy copy;
    bits |= static_cast<uint64_t>(row_bytes);
    while (copy.width < 16 && (bits & static_cast<uint64_t>(copy.width)) == 0) {
      copy.width *= 2;
      ++copy.width_bits;
    }
    copy.share(row_bytes / copy.width);
    // A step of narrow accesses is less than a line.
    const int step = copy.lanes * copy.width;
    if (copy.steps > 1)
      copy.within_line = static_cast<uint32_t>((step < kDeviceLineBytes ? step : kDeviceLineBytes) - 1);
    return copy;
  }

  /// For rows of `count` items that are no words of a line.
  static constexpr RowCopy of_items(int64_t count) {
    RowCopy copy;
    copy.share(count);
    return copy;
  }

  /// Words between the begin of a row at `address` and the first line that begins in it; 0 where a row takes one step.
  /// Less than `words`.
  TIERING_SHARED constexpr int32_t shift(uint64_t address) const {
    return static_cast<int32_t>(((0U - static_cast<uint32_t>(address)) & within_line) >> width_bits);
  }

  /// The word that a lane takes in a step; -1 if there is none for it.
  TIERING_SHARED constexpr int32_t word(int32_t step, int lane, int32_t shift) const {
    const int32_t at = step * lanes + lane;
    if (at >= words) return -1;
    return at < words - shift ? at + shift : at - (words - shift);
  }

  /// The `item`-th step of all. It divides: a thread does so once and goes on by `after`.
  TIERING_SHARED constexpr RowStep at(int32_t item) const { return {item / steps, item % steps}; }

  TIERING_SHARED constexpr RowStep after(RowStep here, RowStep distance) const {
    RowStep there{here.row + distance.row, here.step + distance.step};
    if (there.step >= steps) {
      there.step -= steps;
      ++there.row;
    }
    return there;
  }

 private:
  constexpr void share(int64_t count) {
    words = static_cast<int32_t>(count);
    while (lanes < kWarpLanes && lanes < words) lanes *= 2;
    steps = words / lanes + (words % lanes != 0);
  }
};

}  // namespace tiering
