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
#include <tiering/nvme/controller.hpp>
#include <vector>

namespace tiering::nvme {

/// Makes the engine that a controller reads its image with: index 0 of the set.
using MediumMaker = std::function<std::unique_ptr<ReadEngine>(const ImageSet&)>;

/// io_uring with so many reads in flight, of `max_read` bytes at most; threads where the kernel refuses it.
MediumMaker usual_medium(int depth, uint32_t max_read);

class SoftController final : public Controller {
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
  ~SoftController() override;

  uint32_t block_bytes() const noexcept override;
  uint64_t blocks() const noexcept override;
  bool stop(std::chrono::nanoseconds patience) noexcept override;
  std::string trouble() const override;
  bool running() const noexcept override;

 private:
  class Core;
  std::shared_ptr<Core> core_;
};

}  // namespace tiering::nvme
