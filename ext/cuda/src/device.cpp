#include <tiering/cuda/device.hpp>
#include <tiering/cuda/memory.hpp>

namespace tiering::cuda {

int driver_version() {
  int version = 0;
  check(cudaDriverGetVersion(&version), "asking for the driver's version");
  return version;
}

int runtime_version() {
  int version = 0;
  check(cudaRuntimeGetVersion(&version), "asking for the runtime's version");
  return version;
}

int count_devices() {
  int count = 0;
  check(cudaGetDeviceCount(&count), "looking for a GPU");
  return count;
}

DeviceInfo device_info(int device) {
  cudaDeviceProp found;
  check(cudaGetDeviceProperties(&found, device), "describing a GPU");
  char bus[32] = {};
  check(cudaDeviceGetPCIBusId(bus, sizeof bus, device), "describing a GPU");
  int coherent = 0;
  check(cudaDeviceGetAttribute(&coherent, cudaDevAttrPageableMemoryAccessUsesHostPageTables, device),
        "describing a GPU");
  return {found.name,
          std::to_string(found.major) + "." + std::to_string(found.minor),
          found.multiProcessorCount,
          static_cast<int64_t>(found.totalGlobalMem),
          bus,
          coherent != 0};
}

int64_t free_bytes(int device) {
  const DeviceScope scope(device);
  size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "asking for free memory of the GPU");
  return static_cast<int64_t>(free);
}

void begin_thread(int device) {
  check(cudaSetDevice(device), "choosing the device");
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  check(cudaThreadExchangeStreamCaptureMode(&mode), "letting a thread work during captures");
}

}  // namespace tiering::cuda
