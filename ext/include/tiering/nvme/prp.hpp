// Physical region pages: the controller is told of the memory that a read goes to page by page, because pages that
// follow each other in a program need not do so for the device.
#pragma once

#include <cstdint>
#include <tiering/nvme/commands.hpp>

namespace tiering::nvme {

inline constexpr uint32_t kListEntries = kPageBytes / sizeof(uint64_t);
/// Bytes of the longest read whose pages fit one list, wherever in its first page it begins.
inline constexpr uint32_t kMostReadBytes = kListEntries * kPageBytes;

/// Pages that `bytes` bytes touch which begin `offset` bytes into the first.
constexpr uint32_t pages_touched(uint32_t offset, uint32_t bytes) {
  return (offset + bytes + kPageBytes - 1) / kPageBytes;
}

/// Describes `bytes` bytes, at most kMostReadBytes. `page(i)` is the controller's address of the i-th page that they
/// touch; they begin `offset` bytes into the first, a multiple of 4. `list` is a page of memory, at `list_address` for
/// the controller, that more than two pages are written to; it has to live as long as the command.
template <typename PageOf>
constexpr Prps describe(PageOf&& page, uint32_t offset, uint32_t bytes, uint64_t* list, uint64_t list_address) {
  const uint32_t pages = pages_touched(offset, bytes);
  Prps prps{page(0) + offset, 0};
  if (pages == 2) prps.second = page(1);
  if (pages <= 2) return prps;
  for (uint32_t i = 1; i < pages; ++i) list[i - 1] = page(i);
  prps.second = list_address;
  return prps;
}

}  // namespace tiering::nvme
