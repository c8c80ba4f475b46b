// Division by a number that many numbers are divided by: a multiplication instead of a hundred instructions of a device.
// Source: Granlund, Montgomery, "Division by Invariant Integers using Multiplication" (PLDI'94), theorem 4.2 with N = 63.
#pragma once

#include <bit>
#include <cstdint>
#include <tiering/device/qualifiers.hpp>

namespace tiering {

/// The quotient of any number from 0 on. By default it is 0, as if the divisor were above all numbers.
class Divisor {
 public:
  constexpr Divisor() = default;
  /// From 1 on; of the host.
  explicit constexpr Divisor(int64_t divisor)
      : bits_(std::bit_width(static_cast<uint64_t>(divisor) - 1)),
        factor_(static_cast<uint64_t>((static_cast<unsigned __int128>(1) << (63 + bits_)) /
                                      static_cast<uint64_t>(divisor)) +
                1) {}

  TIERING_SHARED constexpr int64_t divide(int64_t number) const {
    const auto product = static_cast<unsigned __int128>(factor_) * (static_cast<uint64_t>(number) << 1);
    return static_cast<int64_t>(static_cast<uint64_t>(product >> 64) >> bits_);
  }

 private:
  int bits_ = 0;
  uint64_t factor_ = 0;
};

}  // namespace tiering
