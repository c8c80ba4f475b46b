// The codecs, one struct each: how a stored code becomes a float32, and a float32 a code. CPU and GPU share them, and give
// the same bits: every step is one IEEE operation, ties to even, or one on whole numbers; no product is added to; a result
// is 0 or normal where a code of fewer bits is decoded, so flushing subnormals changes nothing; and a subnormal code
// is a difference of normal numbers. Loops over them become vectors: there are selects, no branches.
#pragma once

#include <cstdint>
#include <tiering/device/qualifiers.hpp>

namespace tiering {

/// How numbers are stored, or, the first three, delivered.
enum class Encoding : uint8_t { float32, float16, bfloat16, float8_e4m3, int8 };
inline constexpr int kNumEncodings = 5, kNumDelivered = 3;

namespace codec {

TIERING_SHARED constexpr uint32_t bits_of(float x) { return __builtin_bit_cast(uint32_t, x); }
TIERING_SHARED constexpr float of_bits(uint32_t bits) { return __builtin_bit_cast(float, bits); }

inline constexpr uint32_t kInfinity = 0x7f800000, kSign = 0x80000000;

/// The nearest whole number: adding 2^23 leaves none but those; beyond it there is no other.
TIERING_SHARED constexpr float nearest_whole(float x) {
  const float shift = of_bits(bits_of(0x1p23f) | (bits_of(x) & kSign));
  const float rounded = (x + shift) - shift;
  return (bits_of(x) & ~kSign) < bits_of(0x1p23f) ? rounded : x;
}

/// The magnitude of a float of fewer bits, `least` its smallest normal number, whose fraction begins where float32's does.
TIERING_SHARED constexpr uint32_t widened(uint32_t size, float least) {
  return size < 1U << 23 ? bits_of(of_bits(size + bits_of(least)) - least) : size + bits_of(least) - (1U << 23);
}

/// The reverse, without the last `dropped` bits, to the nearest.
TIERING_SHARED constexpr uint32_t narrowed(uint32_t size, float least, int dropped) {
  const float shift = least * static_cast<float>(1 << dropped);
  const uint32_t small = bits_of(of_bits(size) + shift) - bits_of(shift);
  const uint32_t half = (1U << (dropped - 1)) - 1 + (size >> dropped & 1);
  return size < bits_of(least) ? small : ((size + half) >> dropped) - ((bits_of(least) - (1U << 23)) >> dropped);
}

struct Float32 {
  using Code = uint32_t;
  static constexpr bool kScaled = false;
  TIERING_SHARED static constexpr float decode(uint32_t code, float, int32_t) { return of_bits(code); }
  TIERING_SHARED static constexpr uint32_t encode(float x, float, int32_t) { return bits_of(x); }
};

struct Float16 {
  using Code = uint16_t;
  static constexpr bool kScaled = false;
  TIERING_SHARED static constexpr float decode(uint16_t code, float, int32_t) {
    const uint32_t size = (code & 0x7fffU) << 13;
    const uint32_t quiet = size > 0x7c00 << 13 ? 0x400000U : 0U;  // of NaN
    return of_bits((size < 0x7c00 << 13 ? widened(size, 0x1p-14f) : size | kInfinity | quiet) | (code & 0x8000U) << 16);
  }
  TIERING_SHARED static constexpr uint16_t encode(float x, float, int32_t) {
    const uint32_t size = bits_of(x) & ~kSign;
    const uint32_t infinite = size > kInfinity ? 0x7e00 | (size >> 13 & 0x1ff) : 0x7c00;
    const uint32_t coded = size < bits_of(65536.0f) ? narrowed(size, 0x1p-14f, 13) : infinite;
    return static_cast<uint16_t>(coded | (bits_of(x) & kSign) >> 16);
  }
};

struct BFloat16 {
  using Code = uint16_t;
  static constexpr bool kScaled = false;
  TIERING_SHARED static constexpr float decode(uint16_t code, float, int32_t) { return of_bits(uint32_t{code} << 16); }
  TIERING_SHARED static constexpr uint16_t encode(float x, float, int32_t) {
    const uint32_t bits = bits_of(x);
    const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return static_cast<uint16_t>((bits & ~kSign) > kInfinity ? bits >> 16 | 0x40 : rounded);
  }
};

/// float8 e4m3fn times a power of two, `scale`; it has no infinity, and what is larger saturates.
struct Float8 {
  using Code = uint8_t;
  static constexpr bool kScaled = true;
  TIERING_SHARED static constexpr float decode(uint8_t code, float scale, int32_t) {
    return of_bits(widened((code & 127U) << 20, 0x1p-6f) | (code & 128U) << 24) * scale;
  }
  TIERING_SHARED static constexpr uint8_t encode(float x, float scale, int32_t) {
    const uint32_t size = bits_of(x / scale) & ~kSign, most = bits_of(448.0f);
    return static_cast<uint8_t>(narrowed(size < most ? size : most, 0x1p-6f, 20) | (bits_of(x) & kSign) >> 24);
  }
};

/// 256 steps of `scale`, from `offset` steps on: the sum of two whole numbers is exact, and one rounding follows.
struct Int8 {
  using Code = uint8_t;
  static constexpr bool kScaled = true;
  TIERING_SHARED static constexpr float decode(uint8_t code, float scale, int32_t offset) {
    return static_cast<float>(code + offset) * scale;
  }
  TIERING_SHARED static constexpr uint8_t encode(float x, float scale, int32_t offset) {
    const float step = nearest_whole(x / scale) - static_cast<float>(offset);
    const float low = step > 0.0f ? step : 0.0f;  // NaN too
    return static_cast<uint8_t>(static_cast<int32_t>(low < 255.0f ? low : 255.0f));
  }
};

/// Calls f with the codec of an encoding.
template <typename F>
constexpr decltype(auto) visit(Encoding encoding, F&& f) {
  return encoding == Encoding::float16       ? f(Float16{})
         : encoding == Encoding::bfloat16    ? f(BFloat16{})
         : encoding == Encoding::float8_e4m3 ? f(Float8{})
         : encoding == Encoding::int8        ? f(Int8{})
                                             : f(Float32{});
}

}  // namespace codec

/// Bytes of a number.
constexpr int64_t code_bytes(Encoding encoding) {
  return codec::visit(encoding, [](auto kind) { return static_cast<int64_t>(sizeof(typename decltype(kind)::Code)); });
}

/// How the rows of a table are stored, and delivered; owns nothing. Scaled codecs have parameters for each column.
struct RowCodec {
  Encoding stored = Encoding::float32, delivered = Encoding::float32;  ///< one of the first three is delivered
  int64_t dim = 0;  ///< numbers of a row; 0: rows are delivered as they are stored, whatever they hold
  const float* scale = nullptr;
  const int32_t* offset = nullptr;

  constexpr int64_t stored_bytes() const { return (dim * code_bytes(stored) + 3) / 4 * 4; }
  constexpr int64_t out_bytes() const { return dim * code_bytes(delivered); }
  /// Whether rows may lie so many bytes apart: those of 16-bit numbers also without padding, as a source has them.
  constexpr bool fits(int64_t row_bytes) const {
    return row_bytes == stored_bytes() || (code_bytes(stored) == 2 && row_bytes == dim * 2);
  }
  constexpr RowCodec columns(int64_t begin, int64_t count) const {
    const bool scaled = scale != nullptr;
    return {stored, delivered, count, scaled ? scale + begin : nullptr, scaled ? offset + begin : nullptr};
  }
};

}  // namespace tiering
