// Launching kernels whose threads walk over their items with a stride: any grid does the work.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <tiering/cuda/check.hpp>
#include <tiering/device/qualifiers.hpp>
#include <utility>

namespace tiering::cuda {

/// Multiprocessors of the current device.
inline int multiprocessors() {
  int device = 0, count = 0;
  check(cudaGetDevice(&device), "finding the device");
  check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device), "counting multiprocessors");
  return count;
}

/// Puts a kernel on a stream and returns.
template <typename... Expected, typename... Given>
void launch(const char* what, void (*kernel)(Expected...), int64_t blocks, int threads, cudaStream_t stream,
            Given&&... arguments) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = stream;
  check(cudaLaunchKernelEx(&config, kernel, std::forward<Given>(arguments)...), what);
}

/// Launches as many blocks as `items` need, up to those that `max_sms` multiprocessors hold; 0: all.
template <typename... Expected, typename... Given>
void launch_on(int max_sms, const char* what, void (*kernel)(Expected...), int64_t items, cudaStream_t stream,
               Given&&... arguments) {
  constexpr int kThreads = 256, kPerMultiprocessor = 8;
  if (items <= 0) return;
  const int64_t wanted = (items + kThreads - 1) / kThreads;
  const int64_t most = int64_t{max_sms > 0 ? max_sms : multiprocessors()} * kPerMultiprocessor;
  launch(what, kernel, std::min(wanted, most), kThreads, stream, std::forward<Given>(arguments)...);
}

/// Number of the thread in the grid, and threads of the grid.
TIERING_DEVICE int64_t first_item() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
TIERING_DEVICE int64_t item_stride() { return int64_t{gridDim.x} * blockDim.x; }

}  // namespace tiering::cuda
