// The devices of this machine, whether driver and device can run this build, and what fills their memory from files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tiering::cuda {

struct DeviceInfo {
  std::string name;
  std::string capability;  ///< such as 9.0
  int multiprocessors = 0;
  int64_t total_bytes = 0;
  std::string pci_bus;
  bool coherent = false;  ///< reads host memory over a link that keeps caches in step, such as NVLink-C2C
};

/// Versions as CUDA numbers them: 13000 is 13.0; 0 where there is no driver.
int driver_version();
int runtime_version();
/// Throws CudaError with the runtime's reason where there is no device, or the driver is too old for this build.
int count_devices();
DeviceInfo device_info(int device);
int64_t free_bytes(int device);
/// For threads of ours: makes a device the calling thread's current one, for torch too, and lets the thread allocate
/// and wait for events while another one captures a graph.
void begin_thread(int device);

/// Fills device memory from bytes [offset, offset + bytes) of a file, read past the page cache where that works into
/// two pinned buffers of `chunk` bytes in turn: while one is read into, the other is copied. Throws IoError, CudaError,
/// OutOfMemory; what lies at `into` is then unspecified.
void fill_device(std::byte* into, const std::string& path, int64_t offset, int64_t bytes, const std::string& engine,
                 int64_t chunk);

}  // namespace tiering::cuda
