// A file for data that does not fit memory: without a name, so that it is gone with the process however that
// ends; its space is reserved at once; read and written past the page cache where the file system allows it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <string>
#include <tiering/buffer.hpp>
#include <tiering/io/image_set.hpp>
#include <tiering/task_queue.hpp>
#include <vector>

namespace tiering {

/// Offsets, sizes and addresses are multiples of this.
inline constexpr int64_t kScratchAlignment = 4096;

constexpr int64_t scratch_aligned(int64_t bytes) {
  return (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
}

/// A file without a name.
class ScratchFile {
 public:
  /// Makes a file of `bytes` in `folder`. Throws IoError; a full disk says the bytes needed and free.
  ScratchFile(const std::string& folder, int64_t bytes);
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  ~ScratchFile();

  void write(int64_t offset, int64_t bytes, const void* from) const;

  /// The file, to be read.
  ImageSet to_read() const;

 private:
  std::string folder_;
  int fd_;
  bool direct_ = true;
};

/// Memory aligned for direct reads and writes.
class ScratchMemory {
 public:
  ScratchMemory() = default;
  explicit ScratchMemory(int64_t bytes) : buffer_(bytes + kScratchAlignment) {
    const auto at = reinterpret_cast<uintptr_t>(buffer_.data());
    shift_ = static_cast<int64_t>((~at + 1) % static_cast<uintptr_t>(kScratchAlignment));
  }
  char* data() { return buffer_.data() + shift_; }
  const char* data() const { return buffer_.data() + shift_; }

 private:
  Buffer<char> buffer_;
  int64_t shift_ = 0;
};

/// Keeps the first exception of some threads.
class FirstError {
 public:
  void keep(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
  }
  void rethrow() {
    const std::lock_guard lock(mutex_);
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
};

/// Buffers of one size that are written in the background. Whoever fills one takes it, and hands it back with
/// the place where its bytes belong.
class WriteBehind {
 public:
  WriteBehind(const ScratchFile& file, int64_t buffer_bytes, int64_t num_buffers, int threads);

  int64_t buffer_bytes() const { return buffer_bytes_; }

  /// A free buffer; waits for one. Throws once a write has failed.
  char* take();

  /// Writes the first `bytes` of a taken buffer at `offset`.
  void write(char* buffer, int64_t offset, int64_t bytes);

  /// Waits until all is written. Throws if a write failed.
  void finish();

 private:
  const ScratchFile& file_;
  int64_t buffer_bytes_;
  ScratchMemory memory_;
  FirstError error_;
  std::mutex mutex_;
  std::condition_variable freed_;
  std::vector<char*> free_;
  int64_t under_way_ = 0;
  TaskQueue queue_;  ///< last: its threads end before what they use
};

}  // namespace tiering
