// An NVMe controller made of software: a thread of the host that serves queues from one SSD image.
//
// It is for machines whose drives belong to the kernel: a GPU or a thread submits commands as it would to a drive, and
// the image is read by an engine of read_engine.hpp. It reads, and refuses every other command.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <tiering/io/read_engine.hpp>
#include <tiering/nvme/queue.hpp>
#include <vector>

namespace tiering::nvme {

/// Makes the engine that a controller reads its image with: index 0 of the set.
using MediumMaker = std::function<std::unique_ptr<ReadEngine>(const ImageSet&)>;

/// io_uring with so many reads in flight, of `max_read` bytes at most; threads where the kernel refuses it.
MediumMaker usual_medium(int depth, uint32_t max_read);

/// Everything that a controller and its readers share, kept until both have let go of it.
struct SharedMemory {
  explicit SharedMemory(size_t bytes, bool kept_from_forks = false) : buffer(bytes, kept_from_forks), size(bytes) {}
  AlignedBuffer buffer;
  size_t size;
};

class SoftController {
 public:
  /// Bytes of a logical block, at least; more where the image's direct reads want it. A multiple of 512.
  static constexpr uint32_t kBlockBytes = 512;

  /// Serves `pairs` from now on, by a thread of its own. Commands may name `memory` alone, by its addresses in this
  /// process. What is kept in `owners` lives until no read can land any more.
  SoftController(const ImageFile& image, std::vector<QueuePair> pairs, std::vector<std::span<std::byte>> memory,
                 std::vector<std::shared_ptr<void>> owners, const MediumMaker& medium);
  SoftController(const SoftController&) = delete;
  SoftController& operator=(const SoftController&) = delete;
  /// stop() with a second's patience. In a forked child, where the thread does not exist, it does nothing.
  ~SoftController();

  uint32_t block_bytes() const noexcept;
  /// Logical blocks; bytes of the last that lie past the end of the image are 0.
  uint64_t blocks() const noexcept;
  /// Takes no more commands and waits until no read is under way: nothing lands after that. False: some read has not
  /// come back in time; what it lands in is kept for good.
  bool stop(std::chrono::nanoseconds patience) noexcept;
  /// What went wrong last, in words; empty: nothing.
  std::string trouble() const;
  /// False once the thread has ended, be it by stop() or because of an error that it cannot go on after.
  bool running() const noexcept;

 private:
  class Core;
  std::shared_ptr<Core> core_;
};

}  // namespace tiering::nvme
