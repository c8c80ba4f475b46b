// Prefix sums and sorting by CUB, on a stream. `memory` grows with the longest list. CUB's headers are slow to
// compile and included in cub_calls.cu alone.
#pragma once

#include <tiering/cuda/memory.hpp>

namespace tiering::cuda {

/// Exclusive prefix sums in place.
template <typename T>
void prefix_sums(T* values, int64_t count, Scratch<std::byte>& memory, cudaStream_t stream);

/// Keys and their values.
struct KeyPairs {
  uint64_t* keys;
  uint32_t* values;
};

/// Writes `from` into `into` in ascending order of the keys' lowest `bits` bits; equal keys keep their order.
void sort_pairs(const KeyPairs& from, const KeyPairs& into, int64_t count, int bits, Scratch<std::byte>& memory,
                cudaStream_t stream);

}  // namespace tiering::cuda
