// Exponential random numbers by arithmetic that every machine rounds alike: +, -, *, / on doubles in a fixed
// order, without the system's log(). Compile with -ffp-contract=off: a fused multiply-add rounds otherwise.
#pragma once

#include <bit>
#include <cstdint>

namespace tiering {

/// -log((k + 1/2) / 2^52) for k = the upper 52 bits of `bits`; relative error below 1e-15, between 1.1e-16 and 36.8.
///
/// With x = m * 2^e, m in [sqrt(1/2), sqrt(2)): log(x) = e * log(2) + 2 atanh((m - 1) / (m + 1)), the series cut
/// after the 23rd power, which is below 2^-60 as |(m - 1) / (m + 1)| < 0.1716.
constexpr double exponential(uint64_t bits) {
  const double x = (static_cast<double>(bits >> 12) + 0.5) * 0x1p-52;  // exact: 53 bits
  constexpr uint64_t kSqrtHalf = 0x3fe6a09e667f3bcdULL;
  const uint64_t word = std::bit_cast<uint64_t>(x) - kSqrtHalf;
  const auto exponent = static_cast<int64_t>(word) >> 52;  // arithmetic: floor
  const double m = std::bit_cast<double>((word & 0xfffffffffffffULL) + kSqrtHalf);
  const double s = (m - 1.0) / (m + 1.0), z = s * s;
  double sum = 1.0 / 23.0;
  for (int power = 21; power >= 1; power -= 2) sum = 1.0 / power + z * sum;
  return -(static_cast<double>(exponent) * 0.69314718055994530942 + 2.0 * s * sum);
}

}  // namespace tiering
