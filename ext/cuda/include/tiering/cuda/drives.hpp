// NVMe drives that a device reads by itself: their queues and landing places lie in its memory, it rings their doorbells.
#pragma once

#include <atomic>
#include <mutex>
#include <tiering/cuda/memory.hpp>
#include <tiering/nvme/drive_queues.hpp>

namespace tiering::cuda {

/// Puts the reading of a list on a stream, by a warp for each pair of queues; and, where drives.rest is set, the copying of
/// the pages that it has read.
void read_drive_rows(const DriveSet& drives, const DriveRowList& list, cudaStream_t stream);
void copy_drive_rows(const DriveSet& drives, const DriveRowList& list, cudaStream_t stream);

/// How a device sees what drives write to its memory (GPUDirect RDMA): not at all; after the host has flushed their writes; in
/// the order in which they write.
enum class DriveWrites { none, flushed, ordered };
DriveWrites drive_writes(int device);

/// The drives of a layout's stripe files, in their order. Several threads may read, kRounds at a time.
///
/// Memory: of the device, for each pair of queues `kDepth` pages and 64 KiB. Multiprocessors: a warp for each pair.
class Drives {
 public:
  static constexpr uint32_t kRounds = 2;               ///< lists that are read at a time, each by pairs of its own
  static constexpr uint32_t kPairs = 4, kDepth = 256;  ///< of each round: 896 to 1,020 reads in flight to each drive

  /// On the current device; each drive holds an image of so many bytes, and is read through `pairs` of queues a round.
  /// Throws InputError where drives, device or page size do not fit, IoError where a drive fails.
  Drives(std::vector<std::unique_ptr<Drive>> drives, int64_t page_bytes, const std::vector<int64_t>& image_bytes,
         double patience_seconds, uint32_t pairs = kPairs);
  /// Stops the drives, after what they read is done. Memory that a drive may still write to is never given back.
  ~Drives();
  Drives(const Drives&) = delete;
  Drives& operator=(const Drives&) = delete;

  /// Reads a list after what is on the stream, and waits for it; its geometry's images are the drives, all its memory is
  /// the device's. Throws IoError if a page could not be read, or a drive was given up: the drives then cannot be used any
  /// more.
  void read(const DriveRowList& list, cudaStream_t stream);
  /// Lets reads under way end as failures.
  void stop();

 private:
  /// In pinned memory: what a kernel says to the host.
  struct Words {
    unsigned long long failure = DriveFailure::kNone, rest = 0;
  };
  struct Round {
    std::mutex mutex;
    DriveSet set;
    Words* words = nullptr;
    GpuEvent done;
  };
  void make_queues(const QueueShape& shape);
  void run(Round& round, const DriveRowList& list, cudaStream_t stream) const;
  void leave() noexcept;
  std::string describe(unsigned long long failure) const;

  std::vector<std::unique_ptr<Drive>> drives_;
  std::vector<Registration> doorbells_;
  DeviceMemory memory_;
  std::byte* mapped_ = nullptr;  // the part of it that the drives know
  PinnedMemory words_memory_;
  uint32_t* stop_ = nullptr;  // in pinned memory: what the host says
  Round rounds_[kRounds];
  std::atomic<uint32_t> turn_ = 0;
  std::atomic<bool> given_up_ = false;
  int64_t page_bytes_ = 0;
};

}  // namespace tiering::cuda
