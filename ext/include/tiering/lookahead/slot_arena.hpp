// The memory of a buffer's slots as those see it who only read: also other processes that map it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

namespace tiering {

/// Slots of one size: those of all tables with rows of `row_bytes` bytes.
struct SlotPool {
  int64_t row_bytes = 0;
  int64_t slots = 0;
};

/// Slots are numbered pool by pool, and lie in this order.
class SlotArena {
 public:
  SlotArena(const std::byte* memory, std::vector<SlotPool> pools) : memory_(memory), pools_(std::move(pools)) {}

  /// Where a slot begins, from the begin of the memory; its size is that of its pool's rows.
  int64_t offset(uint32_t slot) const noexcept {
    int64_t begin = 0, number = slot;
    size_t p = 0;
    for (; number >= pools_[p].slots; ++p) {
      number -= pools_[p].slots;
      begin += pools_[p].slots * pools_[p].row_bytes;
    }
    return begin + number * pools_[p].row_bytes;
  }
  const std::byte* slot(uint32_t slot) const noexcept { return memory_ + offset(slot); }
  int64_t slot_bytes(uint32_t slot) const noexcept {
    int64_t past = 0;
    size_t p = 0;
    while (slot >= (past += pools_[p].slots)) ++p;
    return pools_[p].row_bytes;
  }
  int64_t slots() const noexcept {
    return sum([](const SlotPool& pool) { return pool.slots; });
  }
  int64_t bytes() const noexcept {
    return sum([](const SlotPool& pool) { return pool.slots * pool.row_bytes; });
  }

 private:
  template <typename F>
  int64_t sum(F&& f) const noexcept {
    return std::transform_reduce(pools_.begin(), pools_.end(), int64_t{0}, std::plus<>(), f);
  }

  const std::byte* memory_;
  std::vector<SlotPool> pools_;
};

}  // namespace tiering
