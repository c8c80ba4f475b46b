// Devices: their number and properties, and access between them.
#include "devices.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "call.hpp"
#include "device_memory.hpp"
#include "streams.hpp"

namespace simulator {
namespace {

constexpr int kMultiprocessors = 8, kMajor = 9, kMinor = 0, kFirstBus = 0x10;
constexpr int kRuntime = CUDART_VERSION, kOldDriver = 11040;
constexpr int kLowestPriority = 0, kHighestPriority = -5;

bool setting_is(const char* name, std::string_view value) {
  const char* const found = std::getenv(name);
  return found != nullptr && found == value;
}

}  // namespace

Devices& Devices::get() {
  static Devices& devices = *new Devices;
  return devices;
}

Devices::Devices() : process_(getpid()) {
  if (const char* const count = std::getenv("TIERING_SIMULATED_DEVICES")) count_ = std::atoi(count);
  old_driver_ = setting_is("TIERING_SIMULATED_DRIVER", "old");
  peers_ = !setting_is("TIERING_SIMULATED_PEERS", "off");
  ipc_ = !setting_is("TIERING_SIMULATED_IPC", "off");
}

cudaError_t Devices::state() const {
  if (old_driver_) return cudaErrorInsufficientDriver;
  if (count_ <= 0) return cudaErrorNoDevice;
  return getpid() == process_ ? cudaSuccess : cudaErrorInitializationError;
}

cudaError_t Devices::enable_access(int device, int peer) {
  if (!has(peer) || device == peer) return cudaErrorInvalidDevice;
  if (!can_access(device, peer)) return cudaErrorPeerAccessUnsupported;
  const std::lock_guard lock(mutex_);
  return access_.emplace(device, peer).second ? cudaSuccess : cudaErrorPeerAccessAlreadyEnabled;
}

cudaError_t Devices::disable_access(int device, int peer) {
  if (!has(peer)) return cudaErrorInvalidDevice;
  const std::lock_guard lock(mutex_);
  return access_.erase({device, peer}) == 1 ? cudaSuccess : cudaErrorPeerAccessNotEnabled;
}

void Devices::use(int device) {
  const std::lock_guard lock(mutex_);
  used_.insert(device);
}

size_t Devices::used() const {
  const std::lock_guard lock(mutex_);
  return used_.size();
}

}  // namespace simulator

using namespace simulator;

cudaError_t cudaDriverGetVersion(int* driverVersion) {
  if (driverVersion == nullptr) return remember(cudaErrorInvalidValue);
  *driverVersion = Devices::get().old_driver() ? kOldDriver : kRuntime;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* runtimeVersion) {
  if (runtimeVersion == nullptr) return remember(cudaErrorInvalidValue);
  *runtimeVersion = kRuntime;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  if (count == nullptr) return remember(cudaErrorInvalidValue);
  *count = 0;
  return ask([&] {
    *count = Devices::get().count();
    return cudaSuccess;
  });
}

cudaError_t cudaGetDevice(int* device) {
  return ask([&] {
    if (device == nullptr) return cudaErrorInvalidValue;
    *device = current_device;
    return cudaSuccess;
  });
}

cudaError_t cudaSetDevice(int device) {
  return ask([&] {
    if (!Devices::get().has(device)) return cudaErrorInvalidDevice;
    current_device = device;
    Devices::get().use(device);  // since CUDA 12
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceSynchronize() {
  return call([] {
    Streams::get().wait_for_all(current_device);
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* prop, int device) {
  return ask([&] {
    if (prop == nullptr) return cudaErrorInvalidValue;
    if (!Devices::get().has(device)) return cudaErrorInvalidDevice;
    *prop = {};
    std::strcpy(prop->name, "simulated device");
    std::memcpy(prop->uuid.bytes, &device, sizeof device);
    prop->totalGlobalMem = DeviceMemory::get().total();
    prop->warpSize = 32;
    prop->maxThreadsPerBlock = 1024;
    prop->maxThreadsDim[0] = prop->maxThreadsDim[1] = 1024;
    prop->maxThreadsDim[2] = 64;
    prop->maxGridSize[0] = 0x7fffffff;
    prop->maxGridSize[1] = prop->maxGridSize[2] = 65535;
    prop->major = kMajor;
    prop->minor = kMinor;
    prop->multiProcessorCount = kMultiprocessors;
    prop->canMapHostMemory = 1;
    prop->pciBusID = kFirstBus + device;
    prop->unifiedAddressing = 1;
    prop->canUseHostPointerForRegisteredMem = 1;
    prop->hostRegisterSupported = prop->hostRegisterReadOnlySupported = 1;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attr, int device) {
  return ask([&] {
    if (value == nullptr) return cudaErrorInvalidValue;
    if (!Devices::get().has(device)) return cudaErrorInvalidDevice;
    switch (attr) {
      case cudaDevAttrMultiProcessorCount:
        *value = kMultiprocessors;
        return cudaSuccess;
      case cudaDevAttrComputeCapabilityMajor:
        *value = kMajor;
        return cudaSuccess;
      case cudaDevAttrComputeCapabilityMinor:
        *value = kMinor;
        return cudaSuccess;
      case cudaDevAttrPageableMemoryAccess:
      case cudaDevAttrPageableMemoryAccessUsesHostPageTables:
        *value = 0;
        return cudaSuccess;
      case cudaDevAttrCanUseHostPointerForRegisteredMem:
      case cudaDevAttrHostRegisterReadOnlySupported:
        *value = 1;
        return cudaSuccess;
    }
    return cudaErrorInvalidValue;
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* pciBusId, int len, int device) {
  return ask([&] {
    if (!Devices::get().has(device)) return cudaErrorInvalidDevice;
    char name[32];
    const int length = std::snprintf(name, sizeof name, "0000:%02X:00.0", kFirstBus + device);
    if (pciBusId == nullptr || len <= length) return cudaErrorInvalidValue;
    std::strcpy(pciBusId, name);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* leastPriority, int* greatestPriority) {
  return call([&] {
    if (leastPriority != nullptr) *leastPriority = kLowestPriority;
    if (greatestPriority != nullptr) *greatestPriority = kHighestPriority;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceCanAccessPeer(int* canAccessPeer, int device, int peerDevice) {
  return ask([&] {
    const Devices& devices = Devices::get();
    if (canAccessPeer == nullptr) return cudaErrorInvalidValue;
    if (!devices.has(device) || !devices.has(peerDevice)) return cudaErrorInvalidDevice;
    *canAccessPeer = devices.can_access(device, peerDevice) ? 1 : 0;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceEnablePeerAccess(int peerDevice, unsigned flags) {
  return call(
      [&] { return flags != 0 ? cudaErrorInvalidValue : Devices::get().enable_access(current_device, peerDevice); });
}

cudaError_t cudaDeviceDisablePeerAccess(int peerDevice) {
  return call([&] { return Devices::get().disable_access(current_device, peerDevice); });
}
