// The CUDA runtime on host threads: what kernels are written with, and how they are launched. nvcc includes this header
// in every .cu file by itself, another compiler is told to (-include cuda_runtime.h).
//
// Shared memory, barriers and warp shuffles are left out: they need threads of a block that run together.
#pragma once

#include <atomic>
#include <simulator.hpp>
#include <tuple>
#include <type_traits>
#include <utility>

#define __global__
#define __launch_bounds__(...)

// As aligned as on a GPU, so that the sanitizers see an access that a GPU would refuse.
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};

inline constinit thread_local dim3 threadIdx{0}, blockIdx{0}, blockDim, gridDim;

// Atomics give the value that stood there before.
template <typename T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  return std::atomic_ref<T>(*address).fetch_add(value, std::memory_order_relaxed);
}
template <typename T>
T atomicCAS(T* address, std::type_identity_t<T> compare, std::type_identity_t<T> value) {
  std::atomic_ref<T>(*address).compare_exchange_strong(compare, value, std::memory_order_relaxed);
  return compare;
}
template <typename T>
T atomicMin(T* address, std::type_identity_t<T> value) {
  const std::atomic_ref<T> shared(*address);
  T before = shared.load(std::memory_order_relaxed);
  while (!shared.compare_exchange_weak(before, value < before ? value : before, std::memory_order_relaxed)) {
  }
  return before;
}

/// A read past the cache of the multiprocessor: it sees what atomics of other blocks have written.
template <typename T>
T __ldcg(const T* address) {
  return __atomic_load_n(address, __ATOMIC_RELAXED);
}
/// A read of what is not read again.
template <typename T>
T __ldcs(const T* address) {
  return *address;
}

/// Launches a kernel. Every thread gets its own copy of the arguments.
template <typename... Expected, typename... Given>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Expected...), Given&&... given) {
  static_assert((std::is_trivially_copyable_v<Expected> && ...), "arguments of a kernel are copied byte by byte");
  const std::tuple<Expected...> arguments(std::forward<Given>(given)...);
  return std::apply(
      [&](const Expected&... each) {
        return simulator::launch(*config, [kernel, arguments] { std::apply(kernel, arguments); },
                                 {reinterpret_cast<const void*>(kernel), {&each...}, {sizeof(Expected)...}});
      },
      arguments);
}
