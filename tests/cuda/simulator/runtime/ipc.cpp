// Memory of a device in several processes: a handle names the process, its file and the place in it.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "call.hpp"
#include "memory.hpp"
#include "streams.hpp"

namespace simulator {
namespace {

struct Handle {
  pid_t process;
  int file, device;
  ino_t inode;  ///< of the file: another process may have got the number of one that ended
  int64_t at;
  size_t bytes;
};
static_assert(sizeof(Handle) <= sizeof(cudaIpcMemHandle_t));

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

}  // namespace
}  // namespace simulator

using namespace simulator;

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* memory) {
  return call([&] {
    if (!has_ipc()) return cudaErrorNotSupported;
    const auto range = find_range(memory);
    if (!range || range->place != Place::kDevice || range->base != memory) return cudaErrorInvalidValue;
    const int file = device_file(range->device);
    struct stat info{};
    if (fstat(file, &info) != 0) return cudaErrorInvalidValue;
    const Handle made{getpid(), file, range->device, info.st_ino, range->at, range->bytes};
    *handle = {};
    std::memcpy(handle->reserved, &made, sizeof made);
    return cudaSuccess;
  });
}

cudaError_t cudaIpcOpenMemHandle(void** memory, cudaIpcMemHandle_t handle, unsigned) {
  return call([&] {
    Handle named;
    std::memcpy(&named, handle.reserved, sizeof named);
    if (named.process == getpid()) return cudaErrorDeviceUninitialized;
    if (named.device != current_device && !can_access(current_device, named.device))
      return cudaErrorPeerAccessUnsupported;
    std::byte* const base = map_other(named);
    if (base == nullptr) return cudaErrorInvalidResourceHandle;
    add_range({Place::kImported, base, named.bytes});
    *memory = base;
    return cudaSuccess;
  });
}

/// Waits until the devices do nothing any more.
cudaError_t cudaIpcCloseMemHandle(void* memory) {
  return call([&] {
    const auto range = release_range(memory, Place::kImported);
    if (range) unmap_guarded(*range);
    return range ? cudaSuccess : cudaErrorInvalidValue;
  });
}
