#include <algorithm>
#include <cub/device/device_scan.cuh>  // slow to compile: here and nowhere else

#include "prefix_sums.hpp"

namespace tiering::cuda {

namespace {

template <typename T>
void sum(T* values, int64_t count, Scratch<std::byte>& memory, cudaStream_t stream) {
  size_t bytes = 0;
  check(cub::DeviceScan::ExclusiveSum(nullptr, bytes, values, values, count, stream), "sizing prefix sums");
  std::byte* const there = memory.require(static_cast<int64_t>(std::max<size_t>(bytes, 1)));
  check(cub::DeviceScan::ExclusiveSum(there, bytes, values, values, count, stream), "prefix sums");
}

}  // namespace

void prefix_sums(int64_t* values, int64_t count, Scratch<std::byte>& memory, cudaStream_t stream) {
  sum(values, count, memory, stream);
}

void prefix_sums(uint32_t* values, int64_t count, Scratch<std::byte>& memory, cudaStream_t stream) {
  sum(values, count, memory, stream);
}

}  // namespace tiering::cuda
