// Memory of a device in several processes: a handle names the process, its file and the place in it.
#include "ipc.hpp"

#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <list>
#include <mutex>
#include <string>

#include "address_map.hpp"
#include "call.hpp"
#include "device_memory.hpp"
#include "devices.hpp"
#include "streams.hpp"

namespace simulator {
namespace {

constexpr int64_t kMagic = 0x656c646e6168;

struct Handle {
  int64_t magic, process, file;
  uint64_t inode;  ///< of the file: another process may have got the number of one that ended
  int64_t at;
  uint64_t bytes;
  int64_t device;
  bool operator==(const Handle&) const = default;
};
static_assert(sizeof(Handle) <= CUDA_IPC_HANDLE_SIZE);

struct Opened {
  Handle handle;
  std::byte* base;
  size_t uses;
};

struct Imports {
  static Imports& get() {
    static Imports& imports = *new Imports;
    return imports;
  }
  std::mutex mutex;
  std::list<Opened> opened;
};

std::byte* map_other(const Handle& handle) {
  const std::string path = "/proc/" + std::to_string(handle.process) + "/fd/" + std::to_string(handle.file);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return nullptr;
  struct stat info{};
  const bool same = fstat(file, &info) == 0 && info.st_ino == handle.inode;
  std::byte* const base = same ? map_guarded(file, handle.at, handle.bytes) : nullptr;
  close(file);
  return base;
}

cudaError_t export_range(cudaIpcMemHandle_t& out, const Range& range) {
  const int file = DeviceMemory::get().file(range.device);
  struct stat info{};
  if (fstat(file, &info) != 0) return cudaErrorUnknown;
  const Handle handle{kMagic, getpid(), file, info.st_ino, range.at, range.bytes, range.device};
  out = {};
  std::memcpy(out.reserved, &handle, sizeof handle);
  return cudaSuccess;
}

cudaError_t import_range(void*& out, const Handle& handle) {
  if (handle.magic != kMagic) return cudaErrorInvalidValue;
  if (handle.process == getpid()) return cudaErrorDeviceUninitialized;
  const auto owner = static_cast<int>(handle.device);
  if (owner != current_device && !Devices::get().can_access(current_device, owner))
    return cudaErrorPeerAccessUnsupported;
  Imports& imports = Imports::get();
  const std::lock_guard lock(imports.mutex);
  for (Opened& known : imports.opened)
    if (known.handle == handle) {
      ++known.uses;
      out = known.base;
      return cudaSuccess;
    }
  std::byte* const base = map_other(handle);
  if (base == nullptr) return cudaErrorInvalidResourceHandle;
  AddressMap::get().add_own({Place::kImported, base, handle.bytes, current_device});
  imports.opened.push_back({handle, base, 1});
  out = base;
  return cudaSuccess;
}

/// Closes one opening of what lies at `base`; the last one waits until the devices do nothing any more.
cudaError_t close_range(const void* base) {
  Imports& imports = Imports::get();
  const std::lock_guard lock(imports.mutex);
  for (auto known = imports.opened.begin(); known != imports.opened.end(); ++known) {
    if (known->base != base) continue;
    if (--known->uses > 0) return cudaSuccess;
    for (int device = 0; device < Devices::get().count(); ++device) Streams::get().wait_for_all(device);
    AddressMap::get().remove(base, Place::kImported);
    unmap_guarded(known->base, known->handle.bytes);
    imports.opened.erase(known);
    return cudaSuccess;
  }
  return cudaErrorInvalidValue;
}

}  // namespace

size_t opened_from_others() {
  Imports& imports = Imports::get();
  const std::lock_guard lock(imports.mutex);
  size_t uses = 0;
  for (const Opened& known : imports.opened) uses += known.uses;
  return uses;
}

}  // namespace simulator

using namespace simulator;

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* devPtr) {
  return call([&] {
    if (!Devices::get().ipc()) return cudaErrorNotSupported;
    const auto range = AddressMap::get().find(devPtr);
    if (handle == nullptr || !range || range->place != Place::kDevice || range->base != devPtr)
      return cudaErrorInvalidValue;
    return export_range(*handle, *range);
  });
}

cudaError_t cudaIpcOpenMemHandle(void** devPtr, cudaIpcMemHandle_t handle, unsigned flags) {
  return call([&] {
    if (devPtr == nullptr || flags != cudaIpcMemLazyEnablePeerAccess) return cudaErrorInvalidValue;
    Handle named;
    std::memcpy(&named, handle.reserved, sizeof named);
    return import_range(*devPtr, named);
  });
}

cudaError_t cudaIpcCloseMemHandle(void* devPtr) {
  return call([&] { return close_range(devPtr); });
}
