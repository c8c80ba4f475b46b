// Arrays that are walked over from front to back: in memory, mapped, or in a file that is read past the page cache.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <tiering/io/scratch_file.hpp>

namespace tiering {

/// Bytes [offset, offset + bytes) of a file, and where they go: `room` bytes from `into` on, aligned to 4096.
struct StreamRange {
  uint32_t file;
  int64_t offset;
  int64_t bytes;
  std::byte* into;
  int64_t room;
};

/// Reads batches of ranges from files that may lie on several disks. Not thread-safe. A range is widened to the
/// alignment of direct reads and cut into pieces of 1 MiB, all handed to the engine at once, so that the queues of all
/// disks are full while the caller computes. The caller's memory needs kPadding bytes more than a range has.
class StreamReader final : private ReadSink {
 public:
  static constexpr int64_t kPieceBytes = int64_t{1} << 20;
  static constexpr int64_t kAlignment = 4096;
  static constexpr int64_t kPadding = 2 * kAlignment;

  StreamReader(ImageSet files, const std::string& engine);
  StreamReader(const std::vector<std::string>& paths, const std::string& engine, DirectMode mode)
      : StreamReader(ImageSet::open(paths, mode), engine) {}
  StreamReader(const StreamReader&) = delete;
  StreamReader& operator=(const StreamReader&) = delete;
  ~StreamReader() override;

  /// Page-locks the buffers for the kernel, once, where the limit allows it; false where it does not.
  bool register_buffers(std::span<const std::span<std::byte>> buffers);

  /// Begins to read. Nothing else may be under way.
  void start(std::span<const StreamRange> ranges);
  /// Waits for what start() began; per range, where its first byte lies. Throws IoError.
  std::vector<const std::byte*> finish();

  const ImageSet& files() const noexcept { return files_; }
  const char* engine() const noexcept { return engine_->name(); }

 private:
  void ready(size_t, const std::byte*) noexcept override {}
  void add(const StreamRange& range);

  ImageSet files_;
  std::unique_ptr<ReadEngine> engine_;
  std::vector<Read> reads_;
  std::vector<const std::byte*> begins_;
  bool busy_ = false;
};

/// A file that holds an array from its begin on and is read instead of a mapping of it; no path: there is none.
struct DirectFile {
  std::string path = {};
  /// Sees what is read, from an offset on: each thread's reads in order. Called by several threads at once.
  std::function<void(int64_t offset, std::span<const std::byte> bytes)> passed = {};
};

/// Asks for what a scan of [begin, end) will need soon, so that the disk works while the scan computes. Advice only:
/// memory that is there already costs nothing, and a refusal is harmless.
class ReadAhead {
 public:
  template <typename T>
  ReadAhead(const T* begin, const T* end)
      : asked_(reinterpret_cast<uintptr_t>(begin)), end_(reinterpret_cast<uintptr_t>(end)) {}

  /// Says that the scan has come to `at`.
  void reach(const void* at) {
    constexpr uintptr_t kStep = uintptr_t{4} << 20, kAhead = uintptr_t{16} << 20;
    const uintptr_t wanted = std::min(end_, reinterpret_cast<uintptr_t>(at) + kAhead);
    while (asked_ < wanted) {
      const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE)), from = asked_ & ~(page - 1);
      asked_ = std::min(end_, from + kStep);
      madvise(reinterpret_cast<void*>(from), asked_ - from, MADV_WILLNEED);
    }
  }

 private:
  uintptr_t asked_, end_;
};

/// Reads ranges of a file one ahead, into two buffers by turns. The reads are those of a pool of threads: a ring would
/// have to be filled up while the caller computes.
class DoubleBuffer {
 public:
  /// Memory of two buffers.
  static constexpr int64_t memory_bytes(int64_t buffer_bytes) {
    return 2 * (scratch_aligned(buffer_bytes) + 2 * kScratchAlignment);
  }

  DoubleBuffer(ImageSet file, int64_t buffer_bytes)
      : room_(scratch_aligned(buffer_bytes) + kScratchAlignment),
        memory_(static_cast<size_t>(2 * room_)),
        reader_(std::move(file), "threads") {}

  /// Begins to read bytes [offset, offset + bytes), offset a multiple of kScratchAlignment, into the buffer that
  /// take() did not return last.
  void request(int64_t offset, int64_t bytes) {
    const StreamRange range{0, offset, bytes, memory_.data() + (second_ ? room_ : 0), room_};
    reader_.start({&range, 1});
  }

  /// Returns the bytes requested last, once they have arrived. Throws IoError.
  const std::byte* take() {
    second_ = !second_;
    return reader_.finish().front();
  }

 private:
  int64_t room_;
  AlignedBuffer memory_;
  bool second_ = false;
  StreamReader reader_;  ///< last: its reads end before their memory goes
};

/// Memory of for_steps() in bytes.
inline constexpr int64_t kStepBytes = int64_t{4} << 20, kStepMemory = DoubleBuffer::memory_bytes(kStepBytes);

/// Calls body(values, from, to) for steps of [begin, end) in order; values[from..to) are the entries. The file, if
/// there is one, holds them all, and is read instead of `values`: nothing has to be mapped, unmapped and thrown out
/// of the page cache.
template <typename T, typename Body>
void for_steps(const DirectFile& file, const T* values, int64_t begin, int64_t end, Body&& body) {
  constexpr int64_t kItem = sizeof(T), kStep = kStepBytes / kItem;
  if (file.path.empty() || begin >= end) {
    ReadAhead ahead(values + begin, values + end);
    for (int64_t from = begin; from < end; from += kStep) {
      ahead.reach(values + from);
      body(values, from, std::min(end, from + kStep));
    }
    return;
  }
  DoubleBuffer buffer(ImageSet::open({file.path}, DirectMode::on), kStepBytes);
  auto request = [&](int64_t step) { buffer.request(step * kItem, std::min(kStep, end - step) * kItem); };
  const int64_t first = begin / kStep * kStep;
  request(first);
  for (int64_t step = first; step < end; step += kStep) {
    const std::byte* const read = buffer.take();
    if (step + kStep < end) request(step + kStep);
    if (file.passed) file.passed(step * kItem, {read, static_cast<size_t>(std::min(kStep, end - step) * kItem)});
    body(reinterpret_cast<const T*>(read) - step, std::max(begin, step), std::min(end, step + kStep));
  }
}

}  // namespace tiering
