// Front-to-back reads of large files, in the background while the caller works on the chunk before.
#pragma once

#include <tiering/io/read_engine.hpp>

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

}  // namespace tiering
