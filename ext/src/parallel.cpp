#include <pthread.h>

#include <exception>
#include <new>
#include <system_error>
#include <thread>
#include <tiering/parallel.hpp>
#include <unordered_set>
#include <vector>

namespace tiering {

void run_team(int threads, const std::function<void(int)>& body) {
  if (threads <= 1) {
    body(0);
    return;
  }
  std::vector<std::exception_ptr> errors(static_cast<size_t>(threads));
  auto guarded = [&](int t) {
    try {
      body(t);
    } catch (...) {
      errors[t] = std::current_exception();
    }
  };
  std::vector<std::thread> team;
  team.reserve(static_cast<size_t>(threads - 1));
  int started = 1;
  try {
    for (; started < threads; ++started) team.emplace_back(guarded, started);
  } catch (const std::system_error&) {
  }
  guarded(0);
  for (int t = started; t < threads; ++t) guarded(t);
  for (auto& worker : team) worker.join();
  for (auto& error : errors)
    if (error) std::rethrow_exception(error);
}

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
