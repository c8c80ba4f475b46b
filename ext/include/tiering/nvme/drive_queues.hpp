// Where the queues of several drives and the landing places of their reads lie, in memory of the host or of a device.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <tiering/nvme/drive.hpp>
#include <tiering/nvme/drive_rows.hpp>
#include <vector>

namespace tiering {

/// Pairs of queues of each of some drives. Each pair has a chunk of 64 KiB to itself, and chunks for its landing places.
struct QueueShape {
  static constexpr int64_t kChunk = int64_t{1} << DriveQueue::kChunkBits;

  uint32_t drives = 1, pairs = 1;
  uint32_t depth = 8;  ///< entries of a queue, a power of two up to 512
  int64_t page_bytes = 4096;

  uint32_t queues() const { return drives * pairs; }
  int64_t chunks_of_places() const { return (depth * page_bytes + kChunk - 1) / kChunk; }
  int64_t bytes() const { return queues() * (1 + chunks_of_places()) * kChunk; }
};

/// Makes the queues of `drives` in `memory`, shape.bytes() of zeros, whose chunks the drives know by `addresses`; those
/// who use the queues find a drive's registers at `registers`. `put` copies to `memory`.
std::vector<DriveQueue> make_queues(std::span<const std::unique_ptr<Drive>> drives, const QueueShape& shape,
                                    std::byte* memory, std::span<const uint64_t> addresses,
                                    std::span<std::byte* const> registers,
                                    const std::function<void(std::byte*, const void*, size_t)>& put);

}  // namespace tiering
