// Instantaneous codes from a stream of bits, most significant bit first. Nothing outside of it is read, and no number
// above the limit that the caller gives is returned: both are InputErrors.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <tiering/errors.hpp>
#include <tiering/webgraph.hpp>

namespace tiering {

class BitReader {
 public:
  BitReader(std::span<const std::byte> bytes, int zeta_k)
      : bytes_(bytes), num_bits_(static_cast<int64_t>(bytes.size()) * 8), zeta_k_(zeta_k) {}

  int64_t position() const { return position_; }

  void seek(int64_t position) {
    TIERING_EXPECT(
        position >= 0 && position <= num_bits_,
        "bit " + std::to_string(position) + " is outside the stream of " + std::to_string(num_bits_) + " bits");
    position_ = position;
  }

  /// A number of `code` that must be at most `limit`, which is below 2^62; `what` it is, for messages.
  int64_t read(Code code, int64_t limit, const char* what) {
    const int64_t number = decode(code, limit);
    TIERING_EXPECT(number >= 0 && number <= limit, std::string(what) + " of more than " + std::to_string(limit) +
                                                       " before bit " + std::to_string(position_));
    return number;
  }

 private:
  static constexpr int64_t kTooLarge = -1;
  static constexpr int kMostBits = 62;
  /// A window shows so many bits at least.
  static constexpr int kShown = 57;

  int64_t decode(Code code, int64_t limit) {
    switch (code) {
      case Code::unary:
        return unary(limit);
      case Code::gamma:
        return gamma();
      case Code::delta: {
        const int64_t width = gamma();
        return width < 0 || width > kMostBits ? kTooLarge : with_leading_one(static_cast<int>(width));
      }
      case Code::zeta:
        return zeta();
      case Code::nibble:
        return nibble();
    }
    return kTooLarge;
  }

  /// The next bits, the first of them highest; zeros where the stream has ended.
  uint64_t window() const {
    const auto byte = static_cast<size_t>(position_ >> 3);
    uint64_t word = 0;
    if (byte + 8 <= bytes_.size()) {
      std::memcpy(&word, bytes_.data() + byte, 8);
      if constexpr (std::endian::native == std::endian::little) word = __builtin_bswap64(word);
    } else {
      for (size_t i = byte; i < bytes_.size(); ++i)
        word |= static_cast<uint64_t>(bytes_[i]) << (56 - 8 * static_cast<int>(i - byte));
    }
    return word << (position_ & 7);
  }

  void skip(int64_t count) {
    TIERING_EXPECT(count <= num_bits_ - position_, "the stream ends after " + std::to_string(num_bits_) + " bits");
    position_ += count;
  }

  int64_t bits(int count) {
    int64_t number = 0;
    while (count > 0) {
      const int taken = std::min(count, kShown);
      number = number << taken | static_cast<int64_t>(window() >> (64 - taken));
      skip(taken);
      count -= taken;
    }
    return number;
  }

  /// Zeros before the next one.
  int64_t unary(int64_t limit) {
    int64_t zeros = 0;
    while (true) {
      const int some = std::min(std::countl_zero(window()), kShown);
      zeros += some;
      if (zeros > limit) return kTooLarge;
      if (some < kShown) {
        skip(some + 1);
        return zeros;
      }
      skip(some);
    }
  }

  int64_t with_leading_one(int width) { return ((int64_t{1} << width) | bits(width)) - 1; }

  int64_t gamma() {
    const int64_t width = unary(kMostBits);
    return width < 0 ? kTooLarge : with_leading_one(static_cast<int>(width));
  }

  int64_t zeta() {
    const int64_t shells = unary(kMostBits);
    if (shells < 0 || (shells + 1) * zeta_k_ > kMostBits) return kTooLarge;
    const int low = static_cast<int>(shells) * zeta_k_;
    const int64_t smallest = int64_t{1} << low, number = bits(low + zeta_k_ - 1);
    return number < smallest ? number + smallest - 1 : (number << 1 | bits(1)) - 1;
  }

  int64_t nibble() {
    for (int64_t number = 0; number < int64_t{1} << (kMostBits - 3);) {
      const int64_t four = bits(4);
      number = number << 3 | (four & 7);
      if (four & 8) return number;
    }
    return kTooLarge;
  }

  std::span<const std::byte> bytes_;
  int64_t num_bits_, position_ = 0;
  int zeta_k_;
};

}  // namespace tiering
