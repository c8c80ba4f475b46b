// Where the queues of several drives and the landing places of their reads lie, in memory of the host or of a device.
#pragma once

#include <algorithm>
#include <functional>
#include <numeric>
#include <tiering/errors.hpp>
#include <tiering/nvme/drive.hpp>
#include <tiering/nvme/drive_rows.hpp>

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
inline std::vector<DriveQueue> make_queues(std::span<const std::unique_ptr<Drive>> drives, const QueueShape& shape,
                                           std::byte* memory, std::span<const uint64_t> addresses,
                                           std::span<std::byte* const> registers,
                                           const std::function<void(std::byte*, const void*, size_t)>& put) {
  const auto depth = size_t{shape.depth}, of_places = static_cast<size_t>(shape.chunks_of_places());
  // What a pair has in its first chunk; queues begin with a page.
  const size_t completions = std::max(depth * sizeof(DriveCommand), DriveBus::kHostPage),
               reads = completions + depth * sizeof(DriveCompletion), chunks = reads + depth * sizeof(DriveRead),
               free_places = chunks + of_places * sizeof(uint64_t);
  TIERING_EXPECT(free_places + depth * sizeof(uint16_t) <= QueueShape::kChunk, "depth: expected up to 512 entries");
  for (const auto& drive : drives) drive->request_pairs(shape.pairs);
  std::vector<DriveQueue> made;
  for (uint32_t q = 0; q < shape.queues(); ++q) {
    const size_t chunk = q * (1 + of_places);
    std::vector<std::byte> content(QueueShape::kChunk);
    std::fill_n(reinterpret_cast<DriveRead*>(&content[reads]), depth, DriveRead{});
    std::copy_n(&addresses[chunk + 1], of_places, reinterpret_cast<uint64_t*>(&content[chunks]));
    auto* const places = reinterpret_cast<uint16_t*>(&content[free_places]);
    std::iota(places, places + depth, uint16_t{0});
    std::byte* const own = memory + chunk * QueueShape::kChunk;
    put(own, content.data(), content.size());
    Drive& drive = *drives[q % shape.drives];
    const uint32_t pair = q / shape.drives;
    const auto at_bell = [&](uint32_t* bell) {
      return reinterpret_cast<uint32_t*>(registers[q % shape.drives]) + (bell - drive.bus().registers());
    };
    made.push_back({reinterpret_cast<DriveCommand*>(own), reinterpret_cast<DriveCompletion*>(own + completions),
                    at_bell(drive.submit_bell(pair)), at_bell(drive.complete_bell(pair)), own + QueueShape::kChunk,
                    reinterpret_cast<uint64_t*>(own + chunks), reinterpret_cast<uint16_t*>(own + free_places),
                    reinterpret_cast<DriveRead*>(own + reads)});
    drive.create_pair(pair, shape.depth, addresses[chunk], addresses[chunk] + completions);
  }
  return made;
}

}  // namespace tiering
