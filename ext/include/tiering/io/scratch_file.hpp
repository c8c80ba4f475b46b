// A file for data that does not fit memory, and what writes it in the background.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <tiering/io/read_engine.hpp>

namespace tiering {

/// Offsets, sizes and addresses are multiples of this.
inline constexpr int64_t kScratchAlignment = 4096;

constexpr int64_t scratch_aligned(int64_t bytes) { return round_up(bytes, kScratchAlignment); }

/// A file without a name, gone with the process however that ends. Its space is reserved at once; it is read and written
/// past the page cache where the file system allows it.
class ScratchFile {
 public:
  /// Makes a file of `bytes` in `folder`. Throws IoError; a full disk says the bytes needed and free.
  ScratchFile(const std::string& folder, int64_t bytes);

  void write(int64_t offset, int64_t bytes, const void* from) const;

  /// The file, to be read.
  ImageSet to_read() const;

 private:
  std::string folder_;
  Descriptor fd_;
  bool direct_ = true;
};

/// Buffers of one size that threads of its own write to a file. Whoever fills one takes it, and hands it back with the
/// place where its bytes belong. What has not been begun at the end is dropped.
class WriteBehind {
 public:
  WriteBehind(const ScratchFile& file, int64_t buffer_bytes, int64_t num_buffers, int threads)
      : file_(file), buffer_bytes_(buffer_bytes), memory_(static_cast<size_t>(buffer_bytes * num_buffers)) {
    for (int64_t i = num_buffers; i-- > 0;) free_.push_back(memory_.data() + i * buffer_bytes);
    for (int t = 0; t < threads; ++t) workers_.emplace_back([this](const std::stop_token& stop) { work(stop); });
  }

  int64_t buffer_bytes() const { return buffer_bytes_; }

  /// A free buffer; waits for one. Throws once a write has failed.
  std::byte* take() {
    std::unique_lock lock(mutex_);
    freed_.wait(lock, [this] { return error_ || !free_.empty(); });
    if (error_) std::rethrow_exception(error_);
    std::byte* const buffer = free_.back();
    free_.pop_back();
    return buffer;
  }

  /// Writes the first `bytes` of a taken buffer at `offset`.
  void write(std::byte* buffer, int64_t offset, int64_t bytes) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back({buffer, offset, bytes});
      ++under_way_;
    }
    wanted_.notify_one();
  }

  /// Waits until all is written. Throws if a write failed.
  void finish() {
    std::unique_lock lock(mutex_);
    freed_.wait(lock, [this] { return under_way_ == 0; });
    if (error_) std::rethrow_exception(error_);
  }

 private:
  struct Task {
    std::byte* buffer;
    int64_t offset, bytes;
  };
  void work(const std::stop_token& stop) {
    for (std::unique_lock lock(mutex_);;) {
      wanted_.wait(lock, stop, [this] { return !tasks_.empty(); });
      if (stop.stop_requested()) return;
      const Task task = tasks_.front();
      tasks_.pop_front();
      lock.unlock();
      std::exception_ptr error;
      try {
        file_.write(task.offset, task.bytes, task.buffer);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      if (!error_) error_ = error;
      free_.push_back(task.buffer);
      --under_way_;
      freed_.notify_all();
    }
  }

  const ScratchFile& file_;
  int64_t buffer_bytes_;
  AlignedBuffer memory_;
  std::mutex mutex_;
  std::condition_variable_any wanted_, freed_;
  std::vector<std::byte*> free_;
  std::deque<Task> tasks_;
  int64_t under_way_ = 0;  ///< buffers handed back and not yet free
  std::exception_ptr error_;
  std::vector<std::jthread> workers_;  ///< last: they end before what they use
};

}  // namespace tiering
