#include "read_pool.hpp"

#include <pthread.h>

#include <algorithm>
#include <string>
#include <system_error>
#include <thread>
#include <tiering/errors.hpp>

namespace tiering {
namespace {

// Never freed: its threads sleep until the process ends.
std::atomic<ReadPool*> the_pool{nullptr};

// In a child the threads do not exist, and another thread may have held the mutex.
const int refused = pthread_atfork(nullptr, nullptr, [] { the_pool.store(nullptr); });

}  // namespace

ReadPool& ReadPool::of_this_process() {
  ReadPool* pool = the_pool.load();
  if (pool != nullptr) return *pool;
  auto* made = new ReadPool;
  if (the_pool.compare_exchange_strong(pool, made)) return *made;
  delete made;  // another thread was first; no thread of this one has started
  return *pool;
}

void ReadPool::add(SharedWork& work, size_t threads) {
  {
    const std::lock_guard lock(mutex_);
    if (refused != 0) throw IoError(refused, "no memory to prepare reader threads for forks");
    work.busy_ = 0;  // a forked child may have inherited a batch under way
    queue_.insert(queue_.end(), std::min(threads, kMaxThreads), &work);
    try {
      start_threads();
    } catch (const std::system_error& error) {
      if (threads_ == 0) {
        forget(work);
        throw IoError(error.code().value(), std::string("cannot start reader threads: ") + error.what());
      }  // else those that run do it all
    }
  }
  wanted_.notify_all();
}

void ReadPool::start_threads() {
  while (idle_ < queue_.size() && threads_ < kMaxThreads) {
    std::thread([this] { run(); }).detach();
    ++threads_;
    ++idle_;
  }
}

void ReadPool::run() {
  for (std::unique_lock lock(mutex_);;) {
    wanted_.wait(lock, [this] { return !queue_.empty(); });
    SharedWork& work = *queue_.front();
    queue_.pop_front();
    --idle_;
    ++work.busy_;
    lock.unlock();
    work.take_shares();
    lock.lock();
    ++idle_;
    if (--work.busy_ == 0) done_.notify_all();
  }
}

void ReadPool::wait(SharedWork& work) noexcept {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return work.all_taken() && work.busy_ == 0; });
  forget(work);
}

void ReadPool::forget(SharedWork& work) noexcept { std::erase(queue_, &work); }

}  // namespace tiering
