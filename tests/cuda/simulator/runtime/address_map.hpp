// The memory that the runtime knows: allocations, mappings of other processes and registered host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

namespace simulator {

/// Where memory lies: of a device (allocated here, or opened from another process), of the host and pinned (allocated
/// or registered), of the host and unknown to the runtime; split: of a device in part only.
enum class Place { kDevice, kImported, kPinned, kRegistered, kPageable, kSplit };

constexpr bool on_device(Place place) { return place == Place::kDevice || place == Place::kImported; }
constexpr bool pinned(Place place) { return place == Place::kPinned || place == Place::kRegistered; }

struct Range {
  Place place;
  std::byte* base;
  size_t bytes;
  int device;      ///< that it lies on, or that was current when it was pinned
  int64_t at = 0;  ///< in the file of the device, if it was allocated there
};

class AddressMap {
 public:
  static AddressMap& get();

  /// False, and nothing changed, if a part of the range is known.
  bool add(const Range& range);
  /// Adds memory that the runtime has mapped itself. If a part of it is known, then somebody has given registered
  /// memory back to the system: the program ends.
  void add_own(const Range& range);
  /// Forgets the range that begins at `base` and lies at `place`.
  std::optional<Range> remove(const void* base, Place place);
  /// The range that an address lies in.
  std::optional<Range> find(const void* address) const;
  /// Where all of [address, address + bytes) lies.
  Place place(const void* address, size_t bytes) const;
  /// True if a part of [address, address + bytes) is known.
  bool overlaps(const void* address, size_t bytes) const;
  size_t count(Place place) const;
  size_t bytes(Place place) const;

 private:
  using Ranges = std::map<uintptr_t, Range>;
  Ranges::const_iterator first_behind(uintptr_t address) const;

  mutable std::mutex mutex_;
  Ranges ranges_;  ///< by begin; they do not overlap
};

}  // namespace simulator
