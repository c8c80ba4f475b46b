// Reads of SSD images whose NVMe commands are submitted by kernels, wave after wave.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <tiering/cuda/nvme_queues.hpp>
#include <tiering/io/read_engine.hpp>
#include <tiering/nvme/controller.hpp>

namespace tiering::cuda {

struct NvmeOptions {
  uint32_t per_image = 4;                               ///< pairs of queues; one controller serves all of an image
  uint32_t in_flight = 255;                             ///< commands of a pair, at least 2: half of them are a wave's
  uint32_t max_read = 64 << 10;                         ///< bytes of the longest read
  std::chrono::nanoseconds patience = nvme::kPatience;  ///< that a kernel has for the completions of a wave
  int only_image = -1;                                  ///< the one that is read, then number 0; -1: all
};

/// What became of a command; in the order of completions.
struct NvmeResult {
  const std::byte* data;  ///< its landing place, which host and GPU can read
  uint32_t request;       ///< what the caller calls it; the next two are only known if `outcome` is done
  uint32_t status;        ///< nvme::Status
  uint32_t queue;
  nvme::Outcome outcome;
};

/// Pairs of queues, a controller for each image, and what kernels need to use them.
///
/// Up to two waves are under way: while one is waited for, the next is being read. All kernels are put on one stream,
/// and no thread of a controller calls CUDA. For one thread at a time, with the device current that it was made on.
///
/// Memory: per pair, page-locked, a place of `max_read` bytes for each entry of a queue, and 80 bytes; for reads of
/// more than two pages another page. Of the GPU: 34 bytes per entry; where commands lie there, whole blocks of
/// DeviceMemory for them.
class NvmeReads {
 public:
  /// `images` need not outlive it. Throws InputError for options that cannot be, OutOfMemory, CudaError.
  NvmeReads(const nvme::PairServer& server, const ImageSet& images, const NvmeOptions& options);
  NvmeReads(const NvmeReads&) = delete;
  NvmeReads& operator=(const NvmeReads&) = delete;
  /// stop(). Not to be called in a forked child, where there is neither a GPU nor a controller.
  ~NvmeReads();

  /// Adds a read to the wave that is being made. False: its image's queues have no more room in it, or
  /// two waves are under way.
  bool add(const Read& read, uint32_t request);
  /// Reads that were added to it.
  uint32_t added() const noexcept;
  /// Submits the wave that was made; at most two at a time are submitted and not taken. What take() gave is then lost.
  void submit();
  /// Waves that are submitted and not taken.
  uint32_t under_way() const noexcept;
  /// Has the GPU wait for as many completions as the oldest wave has commands; once for each wave, after later ones
  /// that are to be read meanwhile were submitted.
  void expect();
  /// Whether the GPU has done so.
  bool arrived() const;
  /// expect(), and blocks until it has; a controller that has ended ends the wait.
  void wait();
  /// What came, which holds until the next submit(). Not every result is of the oldest wave. If a single outcome is not
  /// "done", nothing more can be read: only stop() is left.
  std::span<const NvmeResult> take();

  /// Ends what kernels wait for. May be called by any thread.
  void abort() noexcept;
  /// Waits for the kernels and stops the controllers. False: a read has not come back in time, and what it may land in
  /// is kept for good.
  bool stop(std::chrono::nanoseconds patience) noexcept;

  /// For kernels of others (nvme_warp.cuh), which must take turns with waves.
  const NvmeQueues& queues() const noexcept;
  cudaStream_t stream() const noexcept;
  const nvme::Controller& controller(uint32_t image) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tiering::cuda
