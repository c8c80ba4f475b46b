// How a thread of the host loads and stores what a controller shares with it.
#pragma once

#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdint>

namespace tiering::nvme {

struct HostLink {
  static uint32_t load_acquire(const uint32_t* word) noexcept {
    return std::atomic_ref<uint32_t>(*const_cast<uint32_t*>(word)).load(std::memory_order_acquire);
  }
  static void store_release(uint32_t* word, uint32_t value) noexcept {
    std::atomic_ref<uint32_t>(*word).store(value, std::memory_order_release);
  }
  /// Others get the processor soon: there may be no other for who is waited for.
  static void pause(uint32_t tries) noexcept {
    if (tries >= 16) sched_yield();
  }
  static uint64_t nanoseconds() noexcept {
    return static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
            .count());
  }
};

}  // namespace tiering::nvme
