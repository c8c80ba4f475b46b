// The memory that the runtime knows: allocations, mappings of other processes and registered host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

namespace simulator {

/// Where memory lies: on a device (allocated here, or opened from another process) or on the host and pinned (allocated
/// or registered).
enum class Place { kDevice, kImported, kPinned, kRegistered };

struct Range {
  Place place;
  std::byte* base;
  size_t bytes;
  int device = 0;  ///< of kDevice: whose memory it is
  int64_t at = 0;  ///< of kDevice: offset in the device's file
};

/// Adds memory that the runtime has mapped. If a part of it is known, then registered memory was given back to the system:
/// the program ends.
void add_range(const Range& range);
/// Forgets the range that begins at `base` and lies at `place`.
std::optional<Range> remove_range(const void* base, Place place);
/// Forgets a range as remove_range does, once the devices do nothing any more.
std::optional<Range> release_range(const void* base, Place place);
/// Returns the range that an address lies in.
std::optional<Range> find_range(const void* address);
/// Returns the number of ranges of a place, and the sum of their bytes.
std::pair<size_t, size_t> count_ranges(Place place);

/// Returns the bytes of memory of each device.
size_t device_bytes();
/// Returns the file that the memory of a device lies in, so that other processes can map parts of it.
int device_file(int device);
/// Maps a part of a file between pages that cannot be read; null if that fails. What lies behind `bytes` in the last
/// page is out of bounds to the address sanitizer.
std::byte* map_guarded(int file, int64_t at, size_t bytes);
void unmap_guarded(const Range& range);

}  // namespace simulator
