// Instantaneous codes to a stream of bits, most significant bit first: to bytes, or only counted.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <tiering/sampling/growing_array.hpp>
#include <utility>

namespace tiering {

/// Takes bits and keeps how many they are.
class BitCounter {
 public:
  void put(uint64_t, int count) { bits_ += count; }
  int64_t bits() const { return bits_; }

 private:
  int64_t bits_ = 0;
};

class BitWriter {
 public:
  /// Appends the lowest `count` bits of `value`, which has no others; at most 64.
  void put(uint64_t value, int count) {
    if (count > kAtOnce) {
      put(value >> kAtOnce, count - kAtOnce);
      value &= (uint64_t{1} << kAtOnce) - 1;
      count = kAtOnce;
    }
    pending_ = pending_ << count | value;
    pending_bits_ += count;
    bits_ += count;
    bytes_.make_room(8);
    for (; pending_bits_ >= 8; pending_bits_ -= 8) append(pending_ >> (pending_bits_ - 8));
  }

  int64_t bits() const { return bits_; }

  /// The bytes that are complete; they are not here any more.
  GrowingArray<uint8_t> take() { return std::exchange(bytes_, {}); }

  /// The same, with zeros up to the end of the last byte: nothing can follow.
  GrowingArray<uint8_t> finish() {
    bytes_.make_room(1);
    if (pending_bits_ > 0) append(pending_ << (8 - pending_bits_));
    pending_bits_ = 0;
    return take();
  }

 private:
  /// With up to 7 bits that wait they fit a word.
  static constexpr int kAtOnce = 48;

  void append(uint64_t byte) {
    bytes_.set_size(bytes_.size() + 1);
    bytes_[bytes_.size() - 1] = static_cast<uint8_t>(byte);
  }

  GrowingArray<uint8_t> bytes_;
  uint64_t pending_ = 0;
  int pending_bits_ = 0;
  int64_t bits_ = 0;
};

template <typename Sink>
void put_unary(Sink& sink, int64_t number) {
  for (; number >= 64; number -= 64) sink.put(0, 64);
  sink.put(1, static_cast<int>(number) + 1);
}

template <typename Sink>
void put_gamma(Sink& sink, int64_t number) {
  const auto one_more = static_cast<uint64_t>(number) + 1;
  const int width = static_cast<int>(std::bit_width(one_more)) - 1;
  put_unary(sink, width);
  sink.put(one_more - (uint64_t{1} << width), width);
}

template <typename Sink>
void put_zeta(Sink& sink, int64_t number, int k) {
  const auto one_more = static_cast<uint64_t>(number) + 1;
  const int shell = (static_cast<int>(std::bit_width(one_more)) - 1) / k, low = shell * k;
  const uint64_t smallest = uint64_t{1} << low;
  put_unary(sink, shell);
  if (one_more < 2 * smallest)
    sink.put(one_more - smallest, low + k - 1);
  else
    sink.put(one_more, low + k);
}

}  // namespace tiering
