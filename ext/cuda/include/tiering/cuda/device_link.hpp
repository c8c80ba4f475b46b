// How a thread of a GPU loads and stores what a controller shares with it, the counterpart of HostLink.
//
// Scope: the controller may be a thread of the host or a device on the bus: words are loaded and stored for the whole
//        system. Over PCIe only loads and stores are atomic, so there is nothing else here; locks and counters of the
//        GPU's own lie in its memory.
#pragma once

#include <cstdint>
#include <tiering/cuda/qualifiers.hpp>
#include <tiering/nvme/host_link.hpp>
#ifdef __CUDACC__
#include <cuda/atomic>
#endif

namespace tiering::cuda {

#ifdef __CUDACC__
struct DeviceLink {
  using Word = ::cuda::atomic_ref<uint32_t, ::cuda::thread_scope_system>;

  static TIERING_BOTH uint32_t load_acquire(const uint32_t* word) {
    return Word(*const_cast<uint32_t*>(word)).load(::cuda::memory_order_acquire);
  }
  static TIERING_BOTH void store_release(uint32_t* word, uint32_t value) {
    Word(*word).store(value, ::cuda::memory_order_release);
  }
  /// Longer and longer, up to about what a look across the link takes.
  static TIERING_BOTH void pause([[maybe_unused]] uint32_t tries) {
#ifdef __CUDA_ARCH__
    __nanosleep(tries < 64 ? 32 + 16 * tries : 1056);
#endif
  }
  static TIERING_BOTH uint64_t nanoseconds() {
    uint64_t now = 0;
#ifdef __CUDA_ARCH__
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
#endif
    return now;
  }
};
#else
using DeviceLink = nvme::HostLink;  // threads of the simulated device are the host's
#endif

}  // namespace tiering::cuda
