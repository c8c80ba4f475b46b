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
  WriteBehind(const ScratchFile& file, int64_t buffer_bytes, int64_t num_buffers, int threads);

  int64_t buffer_bytes() const { return buffer_bytes_; }

  /// A free buffer; waits for one. Throws once a write has failed.
  std::byte* take();

  /// Writes the first `bytes` of a taken buffer at `offset`.
  void write(std::byte* buffer, int64_t offset, int64_t bytes);

  /// Waits until all is written. Throws if a write failed.
  void finish();

 private:
  struct Task {
    std::byte* buffer;
    int64_t offset, bytes;
  };
  void work(const std::stop_token& stop);

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
