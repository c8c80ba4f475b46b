// Reading ahead of a scan over memory that may be mapped from a file: the disk works while the scan computes, and
// a fault does not wait for one small read after the other.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

namespace tiering {

/// Asks for what a scan of [begin, end) will need soon. Advice only: memory that is there already costs nothing,
/// and a refusal is harmless.
class ReadAhead {
 public:
  template <typename T>
  ReadAhead(const T* begin, const T* end)
      : asked_(reinterpret_cast<uintptr_t>(begin)), end_(reinterpret_cast<uintptr_t>(end)) {}

  /// Says that the scan has come to `at`.
  void reach(const void* at) {
    const uintptr_t wanted = std::min(end_, reinterpret_cast<uintptr_t>(at) + kAheadBytes);
    while (asked_ < wanted) {
      const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE)), from = asked_ & ~(page - 1);
      asked_ = std::min(end_, from + kStepBytes);
      madvise(reinterpret_cast<void*>(from), asked_ - from, MADV_WILLNEED);
    }
  }

 private:
  static constexpr uintptr_t kStepBytes = uintptr_t{4} << 20;
  static constexpr uintptr_t kAheadBytes = uintptr_t{16} << 20;

  uintptr_t asked_, end_;
};

/// Calls body(from, to) for steps of [begin, end), reading ahead of them in `values`.
template <typename T, typename Body>
void for_steps_ahead(const T* values, int64_t begin, int64_t end, Body&& body) {
  constexpr int64_t kStep = (int64_t{4} << 20) / static_cast<int64_t>(sizeof(T));
  ReadAhead ahead(values + begin, values + end);
  for (int64_t from = begin; from < end; from += kStep) {
    ahead.reach(values + from);
    body(from, std::min(end, from + kStep));
  }
}

}  // namespace tiering
