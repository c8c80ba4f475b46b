// Counter-based random numbers: every number is a pure function of its key (seed, epoch, batch, hop, relation,
// instance, node key, draw), so a batch comes out the same for any number of threads, in any order. The first five are
// folded once per hop and relation, the instance (in disjoint batches only) and the node key once per node, and the draw is the counter of a SplitMix64 sequence (Steele, Lea,
// Flood 2014).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <tiering/device/qualifiers.hpp>

namespace tiering {

/// SplitMix64's finaliser: a bijection of 64 bits in which every input bit flips every output bit with
/// probability close to one half.
TIERING_SHARED constexpr uint64_t mix64(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ULL;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

inline constexpr uint64_t kGolden = 0x9e3779b97f4a7c15ULL;  // 2^64 / golden ratio, odd

/// The use of a stream of random numbers: keeps the numbers of different uses apart.
enum class StreamUse : uint64_t { neighbors = 1, epoch_order = 2, pinsage = 3, ladies = 4 };

/// Folds one more word into a key.
TIERING_SHARED constexpr uint64_t fold_word(uint64_t key, uint64_t word) {
  return mix64(key + kGolden + mix64(word + kGolden));
}

/// Folds the words of a key into one, in order.
constexpr uint64_t fold_key(StreamUse use, std::initializer_list<uint64_t> words) {
  uint64_t key = mix64(static_cast<uint64_t>(use) * kGolden);
  for (const uint64_t word : words) key = fold_word(key, word);
  return key;
}

/// The random numbers of one key.
class Stream {
 public:
  TIERING_SHARED constexpr Stream(uint64_t group, uint64_t member) : state_(mix64(group + kGolden * member)) {}

  /// Leaves out the next `count` numbers.
  TIERING_SHARED constexpr void skip(uint64_t count) { state_ += kGolden * count; }

  /// Next 64 random bits.
  TIERING_SHARED constexpr uint64_t next() { return mix64(state_ += kGolden); }

  /// Next whole number in [0, bound), by multiply-shift; each value's probability is off by less than
  /// bound / 2^64 of itself.
  TIERING_SHARED constexpr uint64_t below(uint64_t bound) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(next()) * bound) >> 64);
  }

 private:
  uint64_t state_;
};

}  // namespace tiering
