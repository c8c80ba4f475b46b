// Exclusive prefix sums on a stream.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cub/device/device_scan.cuh>
#include <tiering/cuda/memory.hpp>

namespace tiering::cuda {

/// In place. `memory` grows with the longest.
template <typename T>
void prefix_sums(T* values, int64_t count, Scratch<std::byte>& memory, cudaStream_t stream) {
  size_t bytes = 0;
  check(cub::DeviceScan::ExclusiveSum(nullptr, bytes, values, values, count, stream), "sizing prefix sums");
  std::byte* const there = memory.require(static_cast<int64_t>(std::max<size_t>(bytes, 1)));
  check(cub::DeviceScan::ExclusiveSum(there, bytes, values, values, count, stream), "prefix sums");
}

}  // namespace tiering::cuda
