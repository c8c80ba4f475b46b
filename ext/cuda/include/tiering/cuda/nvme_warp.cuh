// The warp that kernels read pages with; see nvme_warp.hpp.
#pragma once

#include <cstdint>
#include <tiering/cuda/device_link.hpp>
#include <tiering/cuda/launch.hpp>
#include <tiering/cuda/nvme_warp.hpp>
#ifndef __CUDACC__
#include <atomic>
#endif

namespace tiering::cuda {

#ifdef __CUDACC__
/// All 32 lanes of a warp, in blocks of whole warps.
struct WholeWarp {
  using Link = DeviceLink;
  static constexpr uint32_t kLanes = 32;

  TIERING_DEVICE uint32_t lane() const { return threadIdx.x % kLanes; }
  TIERING_DEVICE int64_t number() const { return first_item() / kLanes; }
  TIERING_DEVICE uint32_t ballot(bool yes) const { return __ballot_sync(~0U, yes); }
  TIERING_DEVICE uint32_t match(uint64_t value) const { return __match_any_sync(~0U, (unsigned long long){value}); }
  TIERING_DEVICE uint64_t shuffle(uint64_t value, uint32_t from) const {
    return __shfl_sync(~0U, (unsigned long long){value}, static_cast<int>(from));
  }
  TIERING_DEVICE void sync() const { __syncwarp(); }
  TIERING_DEVICE bool try_lock(uint32_t& word) const {
    uint32_t free = 0;
    return OfDevice(word).compare_exchange_strong(free, 1, ::cuda::memory_order_acquire, ::cuda::memory_order_relaxed);
  }
  TIERING_DEVICE void unlock(uint32_t& word) const { OfDevice(word).store(0, ::cuda::memory_order_release); }

 private:
  using OfDevice = ::cuda::atomic_ref<uint32_t, ::cuda::thread_scope_device>;
};
#else
/// Threads of the simulated device run one after the other: each is a warp of one lane.
struct WholeWarp {
  using Link = DeviceLink;
  static constexpr uint32_t kLanes = 1;

  uint32_t lane() const { return 0; }
  int64_t number() const { return first_item(); }
  uint32_t ballot(bool yes) const { return yes ? 1 : 0; }
  uint32_t match(uint64_t) const { return 1; }
  uint64_t shuffle(uint64_t value, uint32_t) const { return value; }
  void sync() const {}
  bool try_lock(uint32_t& word) const {
    uint32_t free = 0;
    return std::atomic_ref(word).compare_exchange_strong(free, 1, std::memory_order_acquire, std::memory_order_relaxed);
  }
  void unlock(uint32_t& word) const { std::atomic_ref(word).store(0, std::memory_order_release); }
};
#endif

}  // namespace tiering::cuda
