// Threads that work through a queue in the background.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tiering {

/// Runs tasks in the order they came, several at a time. Tasks must not throw. The destructor drops those that
/// have not begun and waits for the others.
class TaskQueue {
 public:
  explicit TaskQueue(int threads) {
    for (int t = 0; t < threads; ++t) workers_.emplace_back([this] { work(); });
  }
  TaskQueue(const TaskQueue&) = delete;
  TaskQueue& operator=(const TaskQueue&) = delete;

  ~TaskQueue() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
      tasks_.clear();
    }
    changed_.notify_all();
    for (auto& worker : workers_) worker.join();
  }

  void add(std::function<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    changed_.notify_one();
  }

 private:
  void work() {
    for (std::unique_lock lock(mutex_);;) {
      changed_.wait(lock, [this] { return stopped_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool stopped_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace tiering
