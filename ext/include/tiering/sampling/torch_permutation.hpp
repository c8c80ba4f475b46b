#pragma once

#include <cstdint>
#include <span>

namespace tiering {

/// Fills `order` with the numbers 0..size-1 in the order of ``torch.randperm(size)`` on a CPU after
/// ``torch.manual_seed(seed)``: a Fisher-Yates shuffle from the front, the remainders of 32-bit numbers of the Mersenne
/// Twister. Any torch gives this for sizes below 2^32 / 20; later ones draw 64 bits for larger ones.
void torch_permutation(uint32_t seed, std::span<int64_t> order);

}  // namespace tiering
