// What the tests of the simulator share.
#pragma once

#include <cuda_runtime.h>

#include <vector>

#include "../../cpp/check.hpp"

#define CHECK_CUDA(call) CHECK((call) == cudaSuccess)

/// True if a call gave this error and it was remembered, once.
inline bool refused_at(cudaError_t found, cudaError_t expected) {
  return found == expected && cudaPeekAtLastError() == expected && cudaGetLastError() == expected &&
         cudaGetLastError() == cudaSuccess;
}

inline cudaLaunchConfig_t shape(dim3 grid, dim3 block, cudaStream_t stream) {
  return {grid, block, 0, stream, nullptr, 0};
}

template <typename T>
T* device_array(size_t count) {
  T* memory = nullptr;
  CHECK_CUDA(cudaMalloc(&memory, count * sizeof(T)));
  return memory;
}

template <typename T>
std::vector<T> content(const T* memory, size_t count) {
  std::vector<T> values(count);
  CHECK_CUDA(cudaMemcpy(values.data(), memory, count * sizeof(T), cudaMemcpyDefault));
  return values;
}
