// Devices: how many there are, which one is current, who may read whose memory; and the errors of each thread.
#include <unistd.h>

#include <atomic>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <simulator.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "call.hpp"
#include "memory.hpp"

namespace simulator {
namespace {

constexpr int kMultiprocessors = 8, kFirstBus = 0x10, kOldDriver = 11040;

std::string_view setting(const char* name, const char* otherwise) {
  const char* const found = std::getenv(name);
  return found == nullptr ? otherwise : found;
}

struct Devices {
  const pid_t process = getpid();
  const int count = std::atoi(setting("TIERING_SIMULATED_DEVICES", "1").data());
  const bool old_driver = setting("TIERING_SIMULATED_DRIVER", "") == "old";
  const bool peers = setting("TIERING_SIMULATED_PEERS", "") != "off",
             ipc = setting("TIERING_SIMULATED_IPC", "") != "off";
  std::atomic<uint64_t> used{0};  ///< a bit for each device that has a context

  static Devices& get() {
    static Devices& devices = *new Devices;  // never destroyed: threads of streams may outlive main
    return devices;
  }
};

constinit thread_local cudaError_t last_error = cudaSuccess;
constinit thread_local cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;
/// Devices that were current before, innermost last.
thread_local std::vector<int> pushed;

/// A context is the number of its device, plus one: none is null.
void* context_of(int device) { return reinterpret_cast<void*>(static_cast<uintptr_t>(device) + 1); }

int get_device(int* device, int ordinal) {
  if (!has_device(ordinal)) return cudaErrorInvalidDevice;
  *device = ordinal;
  return cudaSuccess;
}

int retain_context(void** context, int device) {
  use_device(device);
  *context = context_of(device);
  return cudaSuccess;
}

int push_context(void* context) {
  pushed.push_back(std::exchange(current_device, static_cast<int>(reinterpret_cast<uintptr_t>(context)) - 1));
  return cudaSuccess;
}

int pop_context(void** context) {
  if (pushed.empty()) return cudaErrorDeviceUninitialized;
  *context = context_of(std::exchange(current_device, pushed.back()));
  pushed.pop_back();
  return cudaSuccess;
}

void* driver_function(std::string_view name) {
  if (name == "cuDeviceGet") return reinterpret_cast<void*>(get_device);
  if (name == "cuDevicePrimaryCtxRetain") return reinterpret_cast<void*>(retain_context);
  if (name == "cuCtxPushCurrent") return reinterpret_cast<void*>(push_context);
  if (name == "cuCtxPopCurrent") return reinterpret_cast<void*>(pop_context);
  return nullptr;
}

std::string drive_writes = "ordered";

}  // namespace

bool writes_are_flushed() { return drive_writes == "flushed"; }
bool has_device(int device) { return device >= 0 && device < Devices::get().count; }
bool can_access(int device, int peer) { return Devices::get().peers && device != peer; }
bool has_ipc() { return Devices::get().ipc; }
void use_device(int device) { Devices::get().used.fetch_or(uint64_t{1} << device, std::memory_order_relaxed); }
size_t used_devices() { return static_cast<size_t>(std::popcount(Devices::get().used.load())); }

cudaError_t device_state() {
  const Devices& devices = Devices::get();
  if (devices.old_driver) return cudaErrorInsufficientDriver;
  if (devices.count <= 0) return cudaErrorNoDevice;
  return getpid() == devices.process ? cudaSuccess : cudaErrorInitializationError;
}

cudaError_t remember(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

}  // namespace simulator

using namespace simulator;

void simulator_set_drive_writes(const char* how) { drive_writes = how; }
int simulator_device() { return current_device; }
int simulator_capture_mode() { return capture_mode; }

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }

const char* cudaGetErrorName(cudaError_t error) {
#define SIMULATED_NAME(name, number, words) \
  if (error == name) return #name;
  SIMULATED_ERRORS(SIMULATED_NAME)
  return "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
#define SIMULATED_WORDS(name, number, words) \
  if (error == name) return words;
  SIMULATED_ERRORS(SIMULATED_WORDS)
  return "unrecognized error code";
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = Devices::get().old_driver ? kOldDriver : CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  *function = driver_function(name);
  *result = *function == nullptr ? cudaDriverEntryPointSymbolNotFound : cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  return ask([&] {
    *count = Devices::get().count;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDevice(int* device) {
  return ask([&] {
    *device = current_device;
    return cudaSuccess;
  });
}

cudaError_t cudaSetDevice(int device) {
  return ask([&] {
    if (!has_device(device)) return cudaErrorInvalidDevice;
    current_device = device;
    use_device(device);  // since CUDA 12
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return ask([&] {
    if (!has_device(device)) return cudaErrorInvalidDevice;
    *properties = {"simulated device", device_bytes(), 9, 0, kMultiprocessors};
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return ask([&] {
    if (!has_device(device)) return cudaErrorInvalidDevice;
    switch (attribute) {
      case cudaDevAttrMultiProcessorCount:
        *value = kMultiprocessors;
        break;
      case cudaDevAttrGPUDirectRDMASupported:
        *value = 1;
        break;
      case cudaDevAttrGPUDirectRDMAWritesOrdering:
        *value = drive_writes == "ordered" ? cudaGPUDirectRDMAWritesOrderingOwner : 0;
        break;
      case cudaDevAttrGPUDirectRDMAFlushWritesOptions:
        *value = drive_writes == "flushed" ? cudaFlushGPUDirectRDMAWritesOptionHost : 0;
        break;
      default:
        *value = 0;
    }
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceFlushGPUDirectRDMAWrites(cudaFlushGPUDirectRDMAWritesTarget, cudaFlushGPUDirectRDMAWritesScope) {
  return call([] {
    if (flush_drives) flush_drives();
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* name, int bytes, int device) {
  return ask([&] {
    if (!has_device(device)) return cudaErrorInvalidDevice;
    const int length = std::snprintf(name, static_cast<size_t>(bytes), "0000:%02X:00.0", kFirstBus + device);
    return length < bytes ? cudaSuccess : cudaErrorInvalidValue;
  });
}

/// Exchanges a thread's own mode, which is kept though nothing can be captured here.
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return call([&] {
    std::swap(*mode, capture_mode);
    return cudaSuccess;
  });
}
