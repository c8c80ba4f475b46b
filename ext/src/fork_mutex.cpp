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

// Made when the library is loaded, and never freed: a process may fork at any time.
Registry& registry = *new Registry;

void before_fork() {
  registry.mutex.lock();
  for (ForkMutex* each : registry.all) each->lock();
}

void after_fork() {
  for (ForkMutex* each : registry.all) each->unlock();
  registry.mutex.unlock();
}

const int refused = pthread_atfork(before_fork, after_fork, after_fork);

}  // namespace

ForkMutex::ForkMutex() {
  if (refused != 0) throw std::bad_alloc();  // the one reason there is
  const std::lock_guard lock(registry.mutex);
  registry.all.insert(this);
}

ForkMutex::~ForkMutex() {
  const std::lock_guard lock(registry.mutex);
  registry.all.erase(this);
}

}  // namespace tiering
