// Exclusive prefix sums on a stream, in place. `memory` grows with the longest.
#pragma once

#include <cstdint>
#include <tiering/cuda/memory.hpp>

namespace tiering::cuda {

void prefix_sums(int64_t* values, int64_t count, Scratch<std::byte>& memory, cudaStream_t stream);
void prefix_sums(uint32_t* values, int64_t count, Scratch<std::byte>& memory, cudaStream_t stream);

}  // namespace tiering::cuda
