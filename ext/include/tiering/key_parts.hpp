// Keys by the range in which they lie: which things go to which task.
#pragma once

#include <cstdint>
#include <span>
#include <tiering/buffer.hpp>
#include <tiering/views.hpp>
#include <variant>

namespace tiering {

/// Keys from which on positions take 64 bits.
inline constexpr int64_t kWidePositions = int64_t{1} << 32;

struct KeyParts {
  std::variant<Buffer<uint32_t>, Buffer<int64_t>> order;  ///< positions of the keys by part, in each part ascending
  Buffer<int64_t> counts;                                 ///< keys of each part
};

/// Part j has the keys in [bounds[j], bounds[j + 1]). Throws InputError for bounds that fall, and naming the first key
/// in none of the ranges. `wide`: number of keys from which on positions take 64 bits. See reorder/key_parts.cpp.
KeyParts partition_keys(const IdSpan& keys, std::span<const int64_t> bounds, int threads,
                        int64_t wide = kWidePositions);

}  // namespace tiering
