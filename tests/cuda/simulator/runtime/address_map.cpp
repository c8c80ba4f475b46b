// Memory by address.
#include "address_map.hpp"

#include <cstdio>
#include <cstdlib>

namespace simulator {
namespace {

uintptr_t number(const void* address) { return reinterpret_cast<uintptr_t>(address); }

}  // namespace

AddressMap& AddressMap::get() {
  static AddressMap& map = *new AddressMap;
  return map;
}

/// The first range that ends behind an address.
AddressMap::Ranges::const_iterator AddressMap::first_behind(uintptr_t address) const {
  auto at = ranges_.upper_bound(address);
  if (at != ranges_.begin()) {
    const auto before = std::prev(at);
    if (before->first + before->second.bytes > address) return before;
  }
  return at;
}

bool AddressMap::add(const Range& range) {
  const std::lock_guard lock(mutex_);
  const uintptr_t begin = number(range.base);
  const auto at = first_behind(begin);
  if (at != ranges_.end() && at->first < begin + range.bytes) return false;
  ranges_.emplace(begin, range);
  return true;
}

void AddressMap::add_own(const Range& range) {
  if (add(range)) return;
  std::fprintf(stderr, "simulator: memory at %p was unmapped while it was registered\n",
               static_cast<void*>(range.base));
  std::abort();
}

std::optional<Range> AddressMap::remove(const void* base, Place place) {
  const std::lock_guard lock(mutex_);
  const auto at = ranges_.find(number(base));
  if (at == ranges_.end() || at->second.place != place) return std::nullopt;
  const Range range = at->second;
  ranges_.erase(at);
  return range;
}

std::optional<Range> AddressMap::find(const void* address) const {
  const std::lock_guard lock(mutex_);
  const auto at = first_behind(number(address));
  if (at == ranges_.end() || at->first > number(address)) return std::nullopt;
  return at->second;
}

Place AddressMap::place(const void* address, size_t bytes) const {
  const std::lock_guard lock(mutex_);
  const uintptr_t begin = number(address), end = begin + bytes;
  const auto at = first_behind(begin);
  if (at == ranges_.end() || at->first >= end) return Place::kPageable;
  const Range& range = at->second;
  if (begin >= at->first && end <= at->first + range.bytes) return range.place;
  // A copy between host and host may begin in pinned memory and end in other, one that touches a device may not.
  for (auto other = at; other != ranges_.end() && other->first < end; ++other)
    if (on_device(other->second.place)) return Place::kSplit;
  return Place::kPageable;
}

bool AddressMap::overlaps(const void* address, size_t bytes) const {
  const std::lock_guard lock(mutex_);
  const auto at = first_behind(number(address));
  return at != ranges_.end() && at->first < number(address) + bytes;
}

size_t AddressMap::count(Place place) const {
  const std::lock_guard lock(mutex_);
  size_t count = 0;
  for (const auto& [begin, range] : ranges_) count += range.place == place ? 1 : 0;
  return count;
}

size_t AddressMap::bytes(Place place) const {
  const std::lock_guard lock(mutex_);
  size_t bytes = 0;
  for (const auto& [begin, range] : ranges_) bytes += range.place == place ? range.bytes : 0;
  return bytes;
}

}  // namespace simulator
