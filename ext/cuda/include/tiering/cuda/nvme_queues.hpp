// Pairs of NVMe queues as kernels see them: entries and doorbells in page-locked memory of the host, the books in that
// of the GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tiering/nvme/prp.hpp>
#include <tiering/nvme/queue.hpp>

namespace tiering::cuda {

/// A pair of queues; lies in the memory of the GPU.
struct NvmeQueue {
  nvme::QueuePair pair;
  nvme::QueueBooks books;
  std::byte* places = nullptr;  ///< landing places, one for each entry of a queue
  uint32_t place_bytes = 0;
  uint32_t block_bytes = 0;  ///< of a logical block
  uint64_t blocks = 0;       ///< of the image
  uint64_t lists = 0;        ///< address of lists of pages, one for each place, written once: right for any length
  uint32_t spent = 0;        ///< not 0: a wait was given up, so that commands of nobody's may still be in flight
  uint32_t held = 0;         ///< not 0: a warp has it for itself

  constexpr std::byte* place(uint32_t number) const { return places + size_t{number} * place_bytes; }
  /// Describes the first `bytes` of a place.
  TIERING_NVME_FUNCTION nvme::Prps prps(uint32_t number, uint32_t bytes) const {
    const auto first = reinterpret_cast<uint64_t>(place(number));
    const uint32_t pages = nvme::pages_touched(0, bytes);
    if (pages == 1) return {first, 0};
    return {first, pages == 2 ? first + nvme::kPageBytes : lists + uint64_t{number} * nvme::kPageBytes};
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
