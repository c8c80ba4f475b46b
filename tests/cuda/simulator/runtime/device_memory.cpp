// Memory of devices, in files that other processes can map.
#include "device_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes) (void(address), void(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes) (void(address), void(bytes))
#endif

namespace simulator {
namespace {

constexpr size_t kPage = 4096;

size_t whole_pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

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

void unmap_guarded(std::byte* base, size_t bytes) {
  const size_t pages = whole_pages(bytes);
  ASAN_UNPOISON_MEMORY_REGION(base, pages);
  munmap(base - kPage, pages + 2 * kPage);
}

DeviceMemory& DeviceMemory::get() {
  static DeviceMemory& memory = *new DeviceMemory;
  return memory;
}

DeviceMemory::DeviceMemory() {
  if (const char* const bytes = std::getenv("TIERING_SIMULATED_MEMORY")) total_ = std::strtoull(bytes, nullptr, 10);
}

size_t DeviceMemory::total() const {
  const std::lock_guard lock(mutex_);
  return total_;
}

size_t DeviceMemory::free(int device) const {
  const std::lock_guard lock(mutex_);
  const auto file = files_.find(device);
  const size_t used = file == files_.end() ? 0 : file->second.used;
  return used < total_ ? total_ - used : 0;
}

void DeviceMemory::resize(size_t bytes) {
  const std::lock_guard lock(mutex_);
  total_ = bytes;
}

DeviceMemory::File& DeviceMemory::opened(int device) {
  File& file = files_[device];
  if (file.descriptor < 0) file.descriptor = memfd_create("simulated device", MFD_CLOEXEC);
  return file;
}

std::optional<Range> DeviceMemory::allocate(int device, size_t bytes) {
  const std::lock_guard lock(mutex_);
  File& file = opened(device);
  if (file.used >= total_ || bytes > total_ - file.used) return std::nullopt;
  const int64_t at = file.end, end = at + static_cast<int64_t>(whole_pages(bytes));
  if (ftruncate(file.descriptor, end) != 0) return std::nullopt;
  std::byte* const base = map_guarded(file.descriptor, at, bytes);
  if (base == nullptr) return std::nullopt;
  file.end = end;
  file.used += bytes;
  std::memset(base, 0xcd, bytes);
  return Range{Place::kDevice, base, bytes, device, at};
}

void DeviceMemory::release(const Range& range) {
  const std::lock_guard lock(mutex_);
  File& file = files_.at(range.device);
  unmap_guarded(range.base, range.bytes);
  fallocate(file.descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, range.at,
            static_cast<int64_t>(whole_pages(range.bytes)));
  file.used -= range.bytes;
}

int DeviceMemory::file(int device) const {
  const std::lock_guard lock(mutex_);
  return files_.at(device).descriptor;
}

}  // namespace simulator
