// A mutex that stays usable in forked children.
#pragma once

#include <mutex>

namespace tiering {

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
