// Pairs sorted by key on a stream. `memory` grows with the longest list.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tiering/cuda/memory.hpp>

namespace tiering::cuda {

/// Keys and what goes with them.
struct KeyPairs {
  uint64_t* keys;
  uint32_t* values;
};

/// Writes `from` into `into` in ascending order of the keys' lowest `bits` bits; equal keys keep their order.
void sort_pairs(const KeyPairs& from, const KeyPairs& into, int64_t count, int bits, Scratch<std::byte>& memory,
                cudaStream_t stream);

}  // namespace tiering::cuda
