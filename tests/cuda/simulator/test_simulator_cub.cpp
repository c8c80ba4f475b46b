// What the simulated runtime has of CUB: prefix sums and sorting.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>
#include <iostream>
#include <numeric>
#include <vector>

#include "test_support.hpp"

namespace {

void test_scan() {
  cudaStream_t stream = nullptr;
  CHECK_CUDA(cudaStreamCreate(&stream));
  constexpr int kCount = 1000;
  std::vector<int> ones(kCount, 1), expected(kCount);
  int *const in = device_array<int>(kCount), *const out = device_array<int>(kCount);
  CHECK_CUDA(cudaMemcpyAsync(in, ones.data(), kCount * sizeof(int), cudaMemcpyDefault, stream));
  size_t bytes = 0;
  CHECK_CUDA(cub::DeviceScan::ExclusiveSum(nullptr, bytes, in, out, kCount, stream));
  CHECK(bytes > 0);
  void* const temporary = device_array<std::byte>(bytes);
  size_t less = bytes - 1;
  CHECK(cub::DeviceScan::ExclusiveSum(temporary, less, in, out, kCount, stream) == cudaErrorInvalidValue);
  CHECK_CUDA(cub::DeviceScan::ExclusiveSum(temporary, bytes, in, out, kCount, stream));
  CHECK_CUDA(cub::DeviceScan::InclusiveSum(temporary, bytes, in, kCount, stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  std::iota(expected.begin(), expected.end(), 0);
  CHECK(content(out, kCount) == expected);
  std::iota(expected.begin(), expected.end(), 1);
  CHECK(content(in, kCount) == expected);
  CHECK_CUDA(cub::DeviceScan::ExclusiveSum(temporary, bytes, in, in, 4));  // in place
  CHECK(content(in, 5) == (std::vector<int>{0, 1, 3, 6, 5}));
  for (void* memory : {static_cast<void*>(in), static_cast<void*>(out), temporary}) CHECK_CUDA(cudaFree(memory));
  CHECK_CUDA(cudaStreamDestroy(stream));
}

void test_sort() {
  cudaStream_t stream = nullptr;
  CHECK_CUDA(cudaStreamCreate(&stream));
  constexpr int64_t kCount = 1000;
  std::vector<uint64_t> keys;
  std::vector<uint32_t> places(kCount);
  std::iota(places.begin(), places.end(), 0U);
  for (uint64_t i = 0; i < kCount; ++i) keys.push_back(i * 0x9e3779b97f4a7c15ULL);
  uint64_t *const in = device_array<uint64_t>(kCount), *const out = device_array<uint64_t>(kCount);
  uint32_t *const from = device_array<uint32_t>(kCount), *const into = device_array<uint32_t>(kCount);
  CHECK_CUDA(cudaMemcpyAsync(in, keys.data(), kCount * sizeof(uint64_t), cudaMemcpyDefault, stream));
  CHECK_CUDA(cudaMemcpyAsync(from, places.data(), kCount * sizeof(uint32_t), cudaMemcpyDefault, stream));
  size_t bytes = 0;
  CHECK_CUDA(cub::DeviceRadixSort::SortPairs(nullptr, bytes, in, out, from, into, kCount, 3, 9, stream));
  void* const temporary = device_array<std::byte>(bytes);
  size_t less = bytes - 1;
  CHECK(cub::DeviceRadixSort::SortKeys(temporary, less, in, out, kCount) == cudaErrorInvalidValue);
  CHECK(cub::DeviceRadixSort::SortKeys(temporary, bytes, in, out, kCount, 0, 65) == cudaErrorInvalidValue);
  CHECK_CUDA(cub::DeviceRadixSort::SortPairs(temporary, bytes, in, out, from, into, kCount, 3, 9, stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  // Six bits of the key, then the place: a total order.
  std::sort(places.begin(), places.end(), [&](uint32_t a, uint32_t b) {
    const uint64_t of_a = keys[a] >> 3 & 63, of_b = keys[b] >> 3 & 63;
    return of_a != of_b ? of_a < of_b : a < b;
  });
  CHECK(content(into, kCount) == places);
  const auto sorted = content(out, kCount);
  for (size_t i = 0; i < kCount; ++i) CHECK(sorted[i] == keys[places[i]]);
  CHECK_CUDA(cub::DeviceRadixSort::SortKeys(temporary, bytes, in, out, kCount, 0, 64, stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  std::sort(keys.begin(), keys.end());
  CHECK(content(out, kCount) == keys);
  for (void* memory :
       {static_cast<void*>(in), static_cast<void*>(out), static_cast<void*>(from), static_cast<void*>(into), temporary})
    CHECK_CUDA(cudaFree(memory));
  CHECK_CUDA(cudaStreamDestroy(stream));
}

}  // namespace

int main() {
  test_scan();
  test_sort();
  std::cout << "test_simulator_cub: ok\n";
  return 0;
}
