#include <algorithm>
#include <cub/device/device_radix_sort.cuh>  // slow to compile: here and nowhere else

#include "sort_pairs.hpp"

namespace tiering::cuda {

/// Calls CUB for the size of its memory, and again to sort.
void sort_pairs(const KeyPairs& from, const KeyPairs& into, int64_t count, int bits, Scratch<std::byte>& memory,
                cudaStream_t stream) {
  const auto sort = [&](void* temporary, size_t& bytes) {
    return cub::DeviceRadixSort::SortPairs(temporary, bytes, from.keys, into.keys, from.values, into.values, count, 0,
                                           bits, stream);
  };
  size_t bytes = 0;
  check(sort(nullptr, bytes), "sizing a sort");
  std::byte* const there = memory.require_roomy(static_cast<int64_t>(std::max<size_t>(bytes, 1)));
  check(sort(there, bytes), "sorting");
}

}  // namespace tiering::cuda
