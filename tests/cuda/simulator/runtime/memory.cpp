// Memory of devices, pinned memory of the host, and what is known about an address.
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <mutex>
#include <simulator.hpp>
#include <string>

#include "address_map.hpp"
#include "call.hpp"
#include "device_memory.hpp"
#include "streams.hpp"

namespace simulator {
namespace {

constexpr size_t kHostAlignment = 4096;

/// The most that can be registered; the lock is held while a range is registered, so that the sum is right.
struct Registrable {
  std::mutex mutex;
  size_t bytes = std::numeric_limits<size_t>::max();
};

Registrable& registrable() {
  static Registrable& limit = *new Registrable;
  return limit;
}

/// Whether a range is mapped in this process, and writable where that is wanted.
bool mapped(const void* address, size_t bytes, bool writable) {
  uintptr_t at = reinterpret_cast<uintptr_t>(address);
  const uintptr_t end = at + bytes;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; at < end && std::getline(maps, line);) {
    char* rest = nullptr;
    const uintptr_t first = std::strtoull(line.c_str(), &rest, 16);
    const uintptr_t last = std::strtoull(rest + 1, &rest, 16);
    if (last <= at) continue;
    const bool readable = rest[1] == 'r', changeable = rest[2] == 'w';
    if (first > at || !readable || (writable && !changeable)) return false;
    at = last;
  }
  return at >= end;
}

cudaError_t register_host(void* base, size_t bytes, unsigned flags) {
  constexpr unsigned kKnown = cudaHostRegisterPortable | cudaHostRegisterMapped | cudaHostRegisterReadOnly;
  if (base == nullptr || bytes == 0 || (flags & ~kKnown) != 0) return cudaErrorInvalidValue;
  AddressMap& map = AddressMap::get();
  if (map.overlaps(base, bytes)) return cudaErrorHostMemoryAlreadyRegistered;
  if (!mapped(base, bytes, (flags & cudaHostRegisterReadOnly) == 0)) return cudaErrorInvalidValue;
  Registrable& limit = registrable();
  const std::lock_guard lock(limit.mutex);
  const size_t used = map.bytes(Place::kRegistered);
  if (used > limit.bytes || bytes > limit.bytes - used) return cudaErrorMemoryAllocation;
  return map.add({Place::kRegistered, static_cast<std::byte*>(base), bytes, current_device})
             ? cudaSuccess
             : cudaErrorHostMemoryAlreadyRegistered;
}

}  // namespace
}  // namespace simulator

using namespace simulator;

void simulator_set_memory(size_t bytes) { DeviceMemory::get().resize(bytes); }

void simulator_set_registrable(size_t bytes) {
  const std::lock_guard lock(registrable().mutex);
  registrable().bytes = bytes;
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return call([&] {
    if (free == nullptr || total == nullptr) return cudaErrorInvalidValue;
    *free = DeviceMemory::get().free(current_device);
    *total = DeviceMemory::get().total();
    return cudaSuccess;
  });
}

cudaError_t cudaMalloc(void** devPtr, size_t size) {
  return call([&] {
    if (devPtr == nullptr) return cudaErrorInvalidValue;
    if (size == 0) {
      *devPtr = nullptr;
      return cudaSuccess;
    }
    const auto range = DeviceMemory::get().allocate(current_device, size);
    if (!range) return cudaErrorMemoryAllocation;
    AddressMap::get().add_own(*range);
    *devPtr = range->base;
    return cudaSuccess;
  });
}

// Like the real one it waits until the device does nothing any more.
cudaError_t cudaFree(void* devPtr) {
  return call([&] {
    if (devPtr == nullptr) return cudaSuccess;
    const auto found = AddressMap::get().find(devPtr);
    if (!found || found->place != Place::kDevice || found->base != devPtr) return cudaErrorInvalidValue;
    for (int device = 0; device < Devices::get().count(); ++device) Streams::get().wait_for_all(device);
    const auto range = AddressMap::get().remove(devPtr, Place::kDevice);
    if (!range) return cudaErrorInvalidValue;
    DeviceMemory::get().release(*range);
    return cudaSuccess;
  });
}

cudaError_t cudaHostAlloc(void** pHost, size_t size, unsigned flags) {
  return call([&] {
    constexpr unsigned kKnown = cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined;
    if (pHost == nullptr || (flags & ~kKnown) != 0) return cudaErrorInvalidValue;
    *pHost = nullptr;
    if (size == 0) return cudaSuccess;
    void* memory = nullptr;
    if (posix_memalign(&memory, kHostAlignment, size) != 0) return cudaErrorMemoryAllocation;
    std::memset(memory, 0xcd, size);
    AddressMap::get().add_own({Place::kPinned, static_cast<std::byte*>(memory), size, current_device});
    *pHost = memory;
    return cudaSuccess;
  });
}

cudaError_t cudaMallocHost(void** ptr, size_t size) { return cudaHostAlloc(ptr, size, 0); }

cudaError_t cudaFreeHost(void* ptr) {
  return call([&] {
    if (ptr == nullptr) return cudaSuccess;
    const auto found = AddressMap::get().find(ptr);
    if (!found || found->place != Place::kPinned || found->base != ptr) return cudaErrorInvalidValue;
    for (int device = 0; device < Devices::get().count(); ++device) Streams::get().wait_for_all(device);
    if (!AddressMap::get().remove(ptr, Place::kPinned)) return cudaErrorInvalidValue;
    std::free(ptr);
    return cudaSuccess;
  });
}

cudaError_t cudaHostRegister(void* ptr, size_t size, unsigned flags) {
  return call([&] { return register_host(ptr, size, flags); });
}

cudaError_t cudaHostUnregister(void* ptr) {
  return call([&] {
    if (ptr == nullptr) return cudaErrorInvalidValue;
    return AddressMap::get().remove(ptr, Place::kRegistered) ? cudaSuccess : cudaErrorHostMemoryNotRegistered;
  });
}

cudaError_t cudaHostGetDevicePointer(void** pDevice, void* pHost, unsigned flags) {
  return call([&] {
    if (pDevice == nullptr || flags != 0) return cudaErrorInvalidValue;
    const auto range = AddressMap::get().find(pHost);
    if (!range || !pinned(range->place)) return cudaErrorInvalidValue;
    *pDevice = pHost;
    return cudaSuccess;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* ptr) {
  return call([&] {
    if (attributes == nullptr) return cudaErrorInvalidValue;
    void* const address = const_cast<void*>(ptr);
    const auto range = AddressMap::get().find(ptr);
    if (!range)
      *attributes = {cudaMemoryTypeUnregistered, cudaInvalidDeviceId, nullptr, address};
    else if (on_device(range->place))
      *attributes = {cudaMemoryTypeDevice, range->device, address, nullptr};
    else
      *attributes = {cudaMemoryTypeHost, range->device, address, address};
    return cudaSuccess;
  });
}
