#include <algorithm>
#include <numeric>
#include <tiering/errors.hpp>
#include <tiering/nvme/drive_queues.hpp>

namespace tiering {

std::vector<DriveQueue> make_queues(std::span<const std::unique_ptr<Drive>> drives, const QueueShape& shape,
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
