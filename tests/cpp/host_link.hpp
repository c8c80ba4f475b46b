// How threads of the host see what they share with a drive: the link of warps in drive_rows.hpp that run there.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

namespace tiering::test {

struct HostLink {
  static uint32_t load_acquire(const uint32_t* word) {
    return std::atomic_ref<uint32_t>(*const_cast<uint32_t*>(word)).load(std::memory_order_acquire);
  }
  static void ring(uint32_t* bell, uint32_t value) {
    std::atomic_ref<uint32_t>(*bell).store(value, std::memory_order_release);
  }
  static void least(unsigned long long* word, unsigned long long value) {
    std::atomic_ref<unsigned long long> there(*word);
    auto found = there.load();
    while (value < found && !there.compare_exchange_weak(found, value)) {
    }
  }
  static uint32_t claim(uint32_t* word, uint32_t count) { return std::atomic_ref<uint32_t>(*word).fetch_add(count); }
  static void pause(uint32_t) { std::this_thread::yield(); }
  static uint64_t nanoseconds() {
    return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  }
};

}  // namespace tiering::test
