// Threads of the core: plain std::thread teams, cuts by work, exceptions carried to the caller.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <type_traits>
#include <utility>

namespace tiering {

/// Runs body(t) for t in [0, threads) on `threads` threads (the caller is thread 0). The first exception is
/// rethrown in the caller after all have ended. Where the system gives fewer threads, the caller does their parts.
void run_team(int threads, const std::function<void(int)>& body);

/// Nanoseconds of a clock that only goes forward.
inline int64_t nanoseconds() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

/// Half-open range of part `t` when [0, n) is cut into `parts` almost equal parts.
inline std::pair<int64_t, int64_t> even_cut(int64_t n, int parts, int t) {
  const int64_t base = n / parts, rest = n % parts;
  const int64_t begin = base * t + std::min<int64_t>(t, rest);
  return {begin, begin + base + (t < rest ? 1 : 0)};
}

/// Runs body(begin, end), or body(begin, end, t), for the parts of [0, n) on as many threads; see run_team.
template <typename Body>
void for_cuts(int threads, int64_t n, Body&& body) {
  run_team(threads, [&](int t) {
    const auto [begin, end] = even_cut(n, threads, t);
    if constexpr (std::is_invocable_v<Body, int64_t, int64_t, int>)
      body(begin, end, t);
    else
      body(begin, end);
  });
}

/// Calls body(block), or body(block, t) from thread t, for block in [0, blocks), blocks handed out dynamically, in order.
/// Use only where the result does not depend on which thread runs which block.
template <typename Body>
void for_blocks(int threads, int64_t blocks, Body&& body) {
  std::atomic<int64_t> next{0};
  run_team(static_cast<int>(std::min<int64_t>(threads, std::max<int64_t>(blocks, 1))), [&](int t) {
    for (int64_t b = next.fetch_add(1); b < blocks; b = next.fetch_add(1)) {
      if constexpr (std::is_invocable_v<Body, int64_t, int>)
        body(b, t);
      else
        body(b);
    }
  });
}

/// Calls body(begin, end) for [first, last) cut into parts of `step`; see for_blocks.
template <typename Body>
void for_ranges(int threads, int64_t first, int64_t last, int64_t step, Body&& body) {
  for_blocks(threads, (last - first + step - 1) / step, [&](int64_t block) {
    const int64_t begin = first + block * step;
    body(begin, std::min(last, begin + step));
  });
}

/// A mutex that fork() waits for: no thread but the forking one holds it at that moment, so that a child finds it open
/// and what it guards at rest. A thread holds one of them at a time, and does not fork meanwhile.
class ForkMutex {
 public:
  ForkMutex();
  ForkMutex(const ForkMutex&) = delete;
  ForkMutex& operator=(const ForkMutex&) = delete;
  ~ForkMutex();
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

}  // namespace tiering
