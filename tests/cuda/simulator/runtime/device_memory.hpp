// The memory of the devices: a file without a name for each, so that other processes can map parts of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "address_map.hpp"

namespace simulator {

class DeviceMemory {
 public:
  static DeviceMemory& get();

  size_t total() const;
  size_t free(int device) const;
  void resize(size_t bytes);
  /// None, and nothing changed, if there is not enough memory.
  std::optional<Range> allocate(int device, size_t bytes);
  void release(const Range& range);
  /// The file that the memory of a device lies in.
  int file(int device) const;

 private:
  DeviceMemory();
  struct File {
    int descriptor = -1;
    int64_t end = 0;  ///< parts are not used again: the file has holes where memory was given back
    size_t used = 0;
  };
  File& opened(int device);

  mutable std::mutex mutex_;
  size_t total_ = size_t{1} << 30;
  std::map<int, File> files_;
};

/// Maps a part of a file between pages that cannot be read; null if that fails. What lies behind `bytes` in the last
/// page is out of bounds to the address sanitizer.
std::byte* map_guarded(int file, int64_t at, size_t bytes);
void unmap_guarded(std::byte* base, size_t bytes);

}  // namespace simulator
