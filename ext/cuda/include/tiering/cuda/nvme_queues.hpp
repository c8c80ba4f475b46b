// Pairs of NVMe queues as kernels see them: entries and doorbells in page-locked memory of the host, or, of a drive,
// commands in memory of the GPU and doorbells among registers of the drive; the books in memory of the GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tiering/nvme/prp.hpp>
#include <tiering/nvme/queue.hpp>
#include <tiering/nvme/queue_memory.hpp>

namespace tiering::cuda {

/// What a controller calls a landing place: its first two pages, and the list of all but the first, which is written
/// once and right for any length. 0: no read is so long.
struct PlaceAddress {
  uint64_t first = 0, second = 0, list = 0;

  /// As `prps(landing, place, bytes)` describes it, which writes the list.
  template <typename PrpsOf>
  static PlaceAddress of(const nvme::Landing& landing, uint32_t place, PrpsOf&& prps) {
    PlaceAddress found{prps(landing, place, nvme::kPageBytes).first};
    if (landing.place_bytes > nvme::kPageBytes) found.second = prps(landing, place, 2 * nvme::kPageBytes).second;
    if (landing.place_bytes > 2 * nvme::kPageBytes) found.list = prps(landing, place, landing.place_bytes).second;
    return found;
  }
};

/// A pair of queues; lies in the memory of the GPU.
struct NvmeQueue {
  nvme::QueuePair pair;
  nvme::QueueBooks books;
  std::byte* places = nullptr;  ///< landing places, one for each entry of a queue
  uint32_t place_bytes = 0;
  uint32_t block_bytes = 0;                 ///< of a logical block
  uint64_t blocks = 0;                      ///< of the image
  const PlaceAddress* addresses = nullptr;  ///< of places, in memory of the GPU
  uint32_t spent = 0;  ///< not 0: a wait was given up, so that commands of nobody's may still be in flight
  uint32_t held = 0;   ///< not 0: a warp has it for itself

  constexpr std::byte* place(uint32_t number) const { return places + size_t{number} * place_bytes; }
  /// Describes the first `bytes` of a place.
  TIERING_NVME_FUNCTION nvme::Prps prps(uint32_t number, uint32_t bytes) const {
    const PlaceAddress& known = addresses[number];
    const uint32_t pages = nvme::pages_touched(0, bytes);
    return {known.first, pages == 1 ? 0 : pages == 2 ? known.second : known.list};
  }
};

/// Pairs of queues of several images, those of an image side by side. Owns nothing; passed to kernels by value.
struct NvmeQueues {
  NvmeQueue* queues = nullptr;
  uint32_t images = 0;
  uint32_t per_image = 0;
  uint32_t place_bytes = 0;         ///< of a landing place: the longest read
  uint32_t block_bytes = 0;         ///< of a logical block of any image, at most
  uint64_t patience = 0;            ///< nanoseconds that a kernel waits
  const uint32_t* abort = nullptr;  ///< in memory of the host: not 0 ends all waits

  constexpr uint32_t count() const { return images * per_image; }
};

}  // namespace tiering::cuda
