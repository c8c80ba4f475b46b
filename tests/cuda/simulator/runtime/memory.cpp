// Memory of devices, pinned memory of the host, and copies.
#include "memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <simulator.hpp>
#include <string>
#include <vector>

#include "call.hpp"
#include "streams.hpp"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes) (void(address), void(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes) (void(address), void(bytes))
#endif

namespace simulator {
namespace {

constexpr size_t kPage = 4096;

/// Offsets of a file are not used again: it has holes where memory was given back.
struct File {
  int descriptor = memfd_create("simulated device", MFD_CLOEXEC);
  int64_t end = 0;
};

struct Memory {
  std::recursive_mutex mutex;
  std::map<uintptr_t, Range> ranges;  ///< by begin; they do not overlap
  std::map<int, File> files;          ///< by device
  size_t device_bytes = size_t{1} << 30, registrable = SIZE_MAX;

  static Memory& get() {
    static Memory& memory = *new Memory;  // never destroyed: threads of streams may outlive main
    return memory;
  }
};

uintptr_t number(const void* address) { return reinterpret_cast<uintptr_t>(address); }
size_t whole_pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

/// Returns whether a part of [address, address + bytes) is known.
bool overlaps(const void* address, size_t bytes) {
  Memory& memory = Memory::get();
  const auto behind = memory.ranges.lower_bound(number(address) + bytes);
  if (behind == memory.ranges.begin()) return false;
  const auto& [begin, range] = *std::prev(behind);
  return begin + range.bytes > number(address);
}

size_t free_bytes(int device) {
  Memory& memory = Memory::get();
  size_t used = 0;
  for (const auto& [begin, range] : memory.ranges)
    if (range.place == Place::kDevice && range.device == device) used += range.bytes;
  return used < memory.device_bytes ? memory.device_bytes - used : 0;
}

cudaError_t allocate(void*& out, size_t bytes) {
  Memory& memory = Memory::get();
  const std::lock_guard lock(memory.mutex);
  if (bytes > free_bytes(current_device)) return cudaErrorMemoryAllocation;
  File& file = memory.files[current_device];
  const int64_t at = file.end, end = at + static_cast<int64_t>(whole_pages(bytes));
  if (ftruncate(file.descriptor, end) != 0) return cudaErrorMemoryAllocation;
  std::byte* const base = map_guarded(file.descriptor, at, bytes);
  if (base == nullptr) return cudaErrorMemoryAllocation;
  file.end = end;
  add_range({Place::kDevice, base, bytes, current_device, at});
  out = std::memset(base, 0xcd, bytes);
  return cudaSuccess;
}

/// Returns whether memory is mapped in this process, and writable where that is wanted.
bool mapped(const void* address, size_t bytes, bool writable) {
  uintptr_t at = number(address);
  const uintptr_t end = at + bytes;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; at < end && std::getline(maps, line);) {
    char* rest = nullptr;
    const uintptr_t first = std::strtoull(line.c_str(), &rest, 16);
    const uintptr_t last = std::strtoull(rest + 1, &rest, 16);
    if (last <= at) continue;
    if (first > at || rest[1] != 'r' || (writable && rest[2] != 'w')) return false;
    at = last;
  }
  return at >= end;
}

cudaError_t register_host(void* base, size_t bytes, unsigned flags) {
  Memory& memory = Memory::get();
  const std::lock_guard lock(memory.mutex);
  if (bytes == 0 || !mapped(base, bytes, (flags & cudaHostRegisterReadOnly) == 0)) return cudaErrorInvalidValue;
  if (overlaps(base, bytes)) return cudaErrorHostMemoryAlreadyRegistered;
  const size_t registered = count_ranges(Place::kRegistered).second;
  if (registered > memory.registrable || bytes > memory.registrable - registered) return cudaErrorMemoryAllocation;
  add_range({Place::kRegistered, static_cast<std::byte*>(base), bytes});
  return cudaSuccess;
}

/// Where the memory of a copy lies: in one range of the runtime, in part behind a device's, or anywhere else.
enum class Reach { kInside, kOutside, kPageable };

Reach reach(const void* address, size_t bytes) {
  const auto range = find_range(address);
  if (!range) return Reach::kPageable;
  if (number(address) + bytes <= number(range->base) + range->bytes) return Reach::kInside;
  const bool on_device = range->place == Place::kDevice || range->place == Place::kImported;
  return on_device ? Reach::kOutside : Reach::kPageable;
}

cudaError_t copy(void* to, const void* from, size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  const Reach target = reach(to, bytes), source = reach(from, bytes);
  if (target == Reach::kOutside || source == Reach::kOutside) return cudaErrorInvalidValue;
  // Pageable memory has been read when the function returns, and written too.
  if (source == Reach::kPageable && target == Reach::kInside) {
    const auto* const begin = static_cast<const std::byte*>(from);
    return enqueue(stream,
                   [to, staged = std::vector(begin, begin + bytes)] { std::memcpy(to, staged.data(), staged.size()); });
  }
  const cudaError_t error = enqueue(stream, [=] { std::memcpy(to, from, bytes); });
  return error == cudaSuccess && target == Reach::kPageable ? cudaStreamSynchronize(stream) : error;
}

}  // namespace

std::byte* map_guarded(int file, int64_t at, size_t bytes) {
  const size_t pages = whole_pages(bytes), all = pages + 2 * kPage;
  void* const reserved = mmap(nullptr, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return nullptr;
  std::byte* const base = static_cast<std::byte*>(reserved) + kPage;
  if (mmap(base, pages, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, at) == MAP_FAILED) {
    munmap(reserved, all);
    return nullptr;
  }
  ASAN_POISON_MEMORY_REGION(base + bytes, pages - bytes);
  return base;
}

void unmap_guarded(const Range& range) {
  const size_t pages = whole_pages(range.bytes);
  ASAN_UNPOISON_MEMORY_REGION(range.base, pages);
  munmap(range.base - kPage, pages + 2 * kPage);
}

void add_range(const Range& range) {
  Memory& memory = Memory::get();
  const std::lock_guard lock(memory.mutex);
  if (overlaps(range.base, range.bytes)) {
    std::fprintf(stderr, "simulator: memory at %p was unmapped while it was registered\n",
                 static_cast<void*>(range.base));
    std::abort();
  }
  memory.ranges.emplace(number(range.base), range);
}

std::optional<Range> remove_range(const void* base, Place place) {
  Memory& memory = Memory::get();
  const std::lock_guard lock(memory.mutex);
  const auto found = memory.ranges.find(number(base));
  if (found == memory.ranges.end() || found->second.place != place) return std::nullopt;
  return memory.ranges.extract(found).mapped();
}

std::optional<Range> release_range(const void* base, Place place) {
  const auto range = find_range(base);
  if (!range || range->place != place || range->base != base) return std::nullopt;
  wait_for_streams();
  return remove_range(base, place);
}

std::optional<Range> find_range(const void* address) {
  Memory& memory = Memory::get();
  const std::lock_guard lock(memory.mutex);
  if (!overlaps(address, 1)) return std::nullopt;
  return std::prev(memory.ranges.upper_bound(number(address)))->second;
}

std::pair<size_t, size_t> count_ranges(Place place) {
  Memory& memory = Memory::get();
  const std::lock_guard lock(memory.mutex);
  std::pair<size_t, size_t> found{};
  for (const auto& [begin, range] : memory.ranges)
    if (range.place == place) found = {found.first + 1, found.second + range.bytes};
  return found;
}

size_t device_bytes() {
  const std::lock_guard lock(Memory::get().mutex);
  return Memory::get().device_bytes;
}

int device_file(int device) {
  const std::lock_guard lock(Memory::get().mutex);
  return Memory::get().files.at(device).descriptor;
}

}  // namespace simulator

using namespace simulator;

void simulator_set_memory(size_t bytes) {
  const std::lock_guard lock(Memory::get().mutex);
  Memory::get().device_bytes = bytes;
}

void simulator_set_registrable(size_t bytes) {
  const std::lock_guard lock(Memory::get().mutex);
  Memory::get().registrable = bytes;
}

int simulator_find(const void* address, void** begin, size_t* bytes) {
  const auto range = find_range(address);
  if (!range) return 0;
  *begin = range->base;
  *bytes = range->bytes;
  return 1;
}

size_t simulator_live(const char* what) {
  const std::string name = what;
  if (name == "allocations") return count_ranges(Place::kDevice).first;
  if (name == "bytes") return count_ranges(Place::kDevice).second;
  if (name == "host") return count_ranges(Place::kPinned).first;
  if (name == "registered") return count_ranges(Place::kRegistered).first;
  if (name == "ipc") return count_ranges(Place::kImported).first;
  if (name == "streams") return count_streams();
  return name == "contexts" ? used_devices() : SIZE_MAX;
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return call([&] {
    const std::lock_guard lock(Memory::get().mutex);
    *free = free_bytes(current_device);
    *total = device_bytes();
    return cudaSuccess;
  });
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  return call([&] {
    *memory = nullptr;
    return bytes == 0 ? cudaSuccess : allocate(*memory, bytes);
  });
}

cudaError_t cudaFree(void* memory) {
  return call([&] {
    if (memory == nullptr) return cudaSuccess;
    const auto range = release_range(memory, Place::kDevice);
    if (!range) return cudaErrorInvalidValue;
    unmap_guarded(*range);
    fallocate(device_file(range->device), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, range->at,
              static_cast<int64_t>(whole_pages(range->bytes)));
    return cudaSuccess;
  });
}

cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) {
  return call([&] {
    *memory = nullptr;
    if (bytes == 0) return cudaSuccess;
    if (posix_memalign(memory, kPage, bytes) != 0) return cudaErrorMemoryAllocation;
    std::memset(*memory, 0xcd, bytes);
    add_range({Place::kPinned, static_cast<std::byte*>(*memory), bytes});
    return cudaSuccess;
  });
}

cudaError_t cudaFreeHost(void* memory) {
  return call([&] {
    if (memory == nullptr) return cudaSuccess;
    if (!release_range(memory, Place::kPinned)) return cudaErrorInvalidValue;
    std::free(memory);
    return cudaSuccess;
  });
}

cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned flags) {
  return call([&] { return register_host(memory, bytes, flags); });
}

cudaError_t cudaHostUnregister(void* memory) {
  return call(
      [&] { return remove_range(memory, Place::kRegistered) ? cudaSuccess : cudaErrorHostMemoryNotRegistered; });
}

cudaError_t cudaHostGetDevicePointer(void** there, void* memory, unsigned) {
  return call([&] {
    *there = memory;
    return find_range(memory) ? cudaSuccess : cudaErrorInvalidValue;
  });
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return cudaMemcpyAsync(to, from, bytes, kind, nullptr);
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  return call([&] { return copy(to, from, bytes, stream); });
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return call([&] {
    if (bytes == 0) return cudaSuccess;
    if (reach(to, bytes) != Reach::kInside) return cudaErrorInvalidValue;
    return enqueue(stream, [=] { std::memset(to, value, bytes); });
  });
}
