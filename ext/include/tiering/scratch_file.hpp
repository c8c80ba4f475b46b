// A file for data that does not fit memory: without a name, so that it is gone with the process however that
// ends; its space is reserved at once; read and written past the page cache where the file system allows it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <tiering/buffer.hpp>
#include <tiering/task_queue.hpp>
#include <vector>

namespace tiering {

/// Offsets, sizes and addresses are multiples of this.
inline constexpr int64_t kScratchAlignment = 4096;

inline int64_t scratch_aligned(int64_t bytes) {
  return (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
}

/// An open file whose pages do not go through the cache where the file system allows it.
class DirectFile {
 public:
  /// Opens a file that is there to read it; without a value if it cannot be read past the cache.
  static std::unique_ptr<DirectFile> open(const std::string& path);
  ~DirectFile();
  DirectFile(const DirectFile&) = delete;
  DirectFile& operator=(const DirectFile&) = delete;

  /// Reads `bytes`, or up to the end of the file if that is not aligned. Throws IoError.
  void read(int64_t offset, int64_t bytes, void* to) const;

 protected:
  DirectFile(std::string name, int fd) : name_(std::move(name)), fd_(fd) {}

  std::string name_;
  int fd_;
};

/// A file without a name that is read and written.
class ScratchFile : public DirectFile {
 public:
  /// Makes a file of `bytes` in `folder`. Throws IoError; a full disk says the bytes needed and free.
  ScratchFile(const std::string& folder, int64_t bytes);

  void write(int64_t offset, int64_t bytes, const void* from) const;
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

/// Buffers that are filled from a file in the background: one is used while others are read.
class ReadAside {
 public:
  ReadAside(const DirectFile& file, int64_t buffer_bytes, int slots, int threads);

  /// Begins to read into the buffer `slot`, which must not be in use.
  void request(int slot, int64_t offset, int64_t bytes);

  /// The buffer, once it is filled. Throws if a read failed.
  const char* wait(int slot);

 private:
  const DirectFile& file_;
  std::vector<ScratchMemory> memory_;  ///< per slot
  FirstError error_;
  std::mutex mutex_;
  std::condition_variable read_;
  std::vector<int64_t> missing_;  ///< per slot: parts still to be read
  TaskQueue queue_;
};

}  // namespace tiering
