// The threads that block in reads: one pool for the whole process.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>

namespace tiering {

/// Work that several threads take shares of.
class SharedWork {
 public:
  virtual ~SharedWork() = default;
  /// Takes shares until none is left. Several threads at once.
  virtual void take_shares() noexcept = 0;
  /// Whether all shares were taken; from then on it stays so.
  virtual bool all_taken() const noexcept = 0;

 private:
  friend class ReadPool;
  size_t busy_ = 0;  ///< threads in take_shares(); guarded by the pool's mutex
};

/// Threads start when there is work for them, up to a limit, and stay. A forked child has a pool of its own.
class ReadPool {
 public:
  static constexpr size_t kMaxThreads = 128;

  static ReadPool& of_this_process();

  /// Lets up to `threads` threads take shares of `work`. Throws IoError if the process has no thread and gets none.
  void add(SharedWork& work, size_t threads);
  /// Blocks until every share that was taken is done; `work` must be all taken by then.
  void wait(SharedWork& work) noexcept;

 private:
  void start_threads();
  void run();
  void forget(SharedWork& work) noexcept;

  std::mutex mutex_;
  std::condition_variable wanted_, done_;
  std::deque<SharedWork*> queue_;  ///< an entry for each thread that is wanted
  size_t threads_ = 0;
  size_t idle_ = 0;  ///< threads that wait for an entry
};

}  // namespace tiering
