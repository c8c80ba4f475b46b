#include <pthread.h>

#include <new>
#include <tiering/fork_mutex.hpp>
#include <unordered_set>

namespace tiering {
namespace {

struct Registry {
  std::mutex mutex;
  std::unordered_set<ForkMutex*> all;
};

Registry& registry();

void before_fork() {
  registry().mutex.lock();
  for (ForkMutex* each : registry().all) each->lock();
}

void after_fork() {
  for (ForkMutex* each : registry().all) each->unlock();
  registry().mutex.unlock();
}

/// Never freed: a process may fork while it ends.
Registry& registry() {
  static Registry* const made = [] {
    if (pthread_atfork(before_fork, after_fork, after_fork) != 0) throw std::bad_alloc();
    return new Registry;
  }();
  return *made;
}

}  // namespace

ForkMutex::ForkMutex() {
  const std::lock_guard lock(registry().mutex);
  registry().all.insert(this);
}

ForkMutex::~ForkMutex() {
  const std::lock_guard lock(registry().mutex);
  registry().all.erase(this);
}

}  // namespace tiering
