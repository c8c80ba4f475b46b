// The CUDA runtime on host threads: what is written in kernels, and how they are launched. The compiler of CUDA
// includes this header in every .cu file by itself, another is told to (-include cuda_runtime.h).
//
// Shared memory, barriers and warp shuffles are left out: they need threads of a block to run together. A kernel that
// uses them does not compile here.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <bit>
#include <climits>
#include <concepts>
#include <simulator.hpp>
#include <tuple>
#include <type_traits>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)

inline constinit thread_local uint3 threadIdx{}, blockIdx{};
inline constinit thread_local dim3 blockDim, gridDim;

namespace simulator {

template <typename T>
concept Counter = std::same_as<T, int> || std::same_as<T, unsigned> || std::same_as<T, unsigned long long>;

/// What a GPU reads in one access, the type of a vector being one with a member x.
template <typename T>
concept Word = std::is_arithmetic_v<T> || requires(T word) { word.x; };

/// Sets `place` to change(its value) in one step and gives the value before.
template <typename T, typename Change>
T exchange_by(T* place, Change change) {
  const std::atomic_ref<T> shared(*place);
  T before = shared.load(std::memory_order_relaxed);
  while (!shared.compare_exchange_weak(before, change(before), std::memory_order_relaxed)) {
  }
  return before;
}

}  // namespace simulator

// Atomics: of an order of their own, as on a GPU. They give the value that stood there before.
template <simulator::Counter T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  return std::atomic_ref<T>(*address).fetch_add(value, std::memory_order_relaxed);
}
template <simulator::Counter T>
T atomicOr(T* address, std::type_identity_t<T> value) {
  return std::atomic_ref<T>(*address).fetch_or(value, std::memory_order_relaxed);
}
template <simulator::Counter T>
T atomicExch(T* address, std::type_identity_t<T> value) {
  return std::atomic_ref<T>(*address).exchange(value, std::memory_order_relaxed);
}
template <simulator::Counter T>
T atomicMin(T* address, std::type_identity_t<T> value) {
  return simulator::exchange_by(address, [value](T before) { return value < before ? value : before; });
}
template <simulator::Counter T>
T atomicMax(T* address, std::type_identity_t<T> value) {
  return simulator::exchange_by(address, [value](T before) { return value > before ? value : before; });
}
template <simulator::Counter T>
T atomicCAS(T* address, std::type_identity_t<T> compare, std::type_identity_t<T> value) {
  std::atomic_ref<T>(*address).compare_exchange_strong(compare, value, std::memory_order_relaxed);
  return compare;
}

/// A change of a shared word instead of a fence, because the thread sanitizer does not know fences.
inline void __threadfence() {
  static std::atomic<int> fence{0};
  fence.fetch_add(1, std::memory_order_seq_cst);
}

/// Past the cache of the multiprocessor: it sees what atomics of other blocks have written, and is one itself.
template <simulator::Word T>
T __ldcg(const T* address) {
  if constexpr (!std::is_arithmetic_v<T>) {
    return *address;
  } else {
    T value;
    __atomic_load(address, &value, __ATOMIC_RELAXED);
    return value;
  }
}

// Reads and writes with a hint for the caches.
template <simulator::Word T>
T __ldg(const T* address) {
  return *address;
}
template <simulator::Word T>
T __ldcs(const T* address) {
  return *address;
}
template <simulator::Word T>
void __stcs(T* address, std::type_identity_t<T> value) {
  *address = value;
}

// Bits.
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return std::countl_zero(static_cast<unsigned long long>(x)); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }

/// Launches a kernel. Every thread gets its own copy of the arguments.
template <typename... ExpTypes, typename... ActTypes>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(ExpTypes...),
                               ActTypes&&... args) {
  static_assert((std::is_trivially_copyable_v<ExpTypes> && ...),
                "arguments of a kernel are copied byte by byte");
  return [&](ExpTypes... taken) {
    return simulator::launch(
        config, [kernel, copies = std::tuple<ExpTypes...>(taken...)] { std::apply(kernel, copies); },
        {reinterpret_cast<const void*>(kernel), {&taken...}, {sizeof(ExpTypes)...}});
  }(std::forward<ActTypes>(args)...);
}

// Allocations into pointers of any type.
template <typename T>
cudaError_t cudaMalloc(T** devPtr, size_t size) {
  return ::cudaMalloc(reinterpret_cast<void**>(devPtr), size);
}
template <typename T>
cudaError_t cudaHostAlloc(T** ptr, size_t size, unsigned flags) {
  return ::cudaHostAlloc(reinterpret_cast<void**>(ptr), size, flags);
}
template <typename T>
cudaError_t cudaMallocHost(T** ptr, size_t size, unsigned flags = 0) {
  return ::cudaHostAlloc(reinterpret_cast<void**>(ptr), size, flags);
}
template <typename T>
cudaError_t cudaHostGetDevicePointer(T** pDevice, void* pHost, unsigned flags) {
  return ::cudaHostGetDevicePointer(reinterpret_cast<void**>(pDevice), pHost, flags);
}
