#include <algorithm>
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>

#include "cub_calls.hpp"

namespace tiering::cuda {
namespace {

/// Calls CUB for the size of its memory, and again to do the work.
template <typename Work>
void with_memory(const char* what, Scratch<std::byte>& memory, Work&& work) {
  size_t bytes = 0;
  check(work(nullptr, bytes), what);
  std::byte* const there = memory.require_roomy(static_cast<int64_t>(std::max<size_t>(bytes, 1)));
  check(work(there, bytes), what);
}

}  // namespace

template <typename T>
void prefix_sums(T* values, int64_t count, Scratch<std::byte>& memory, cudaStream_t stream) {
  with_memory("prefix sums", memory, [=](void* temporary, size_t& bytes) {
    return cub::DeviceScan::ExclusiveSum(temporary, bytes, values, values, count, stream);
  });
}
template void prefix_sums(int64_t*, int64_t, Scratch<std::byte>&, cudaStream_t);
template void prefix_sums(uint32_t*, int64_t, Scratch<std::byte>&, cudaStream_t);

void sort_pairs(const KeyPairs& from, const KeyPairs& into, int64_t count, int bits, Scratch<std::byte>& memory,
                cudaStream_t stream) {
  with_memory("sorting", memory, [=](void* temporary, size_t& bytes) {
    return cub::DeviceRadixSort::SortPairs(temporary, bytes, from.keys, into.keys, from.values, into.values, count, 0,
                                           bits, stream);
  });
}

}  // namespace tiering::cuda
