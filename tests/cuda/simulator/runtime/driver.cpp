// Functions of the driver, which the runtime hands out by name: the contexts of devices, and which of them is current.
#include <cstdint>
#include <string_view>
#include <vector>

#include "call.hpp"

namespace simulator {
namespace {

constexpr int kSuccess = 0, kInvalidContext = 201, kInvalidDevice = 101;

/// What was current before, innermost last.
thread_local std::vector<int> pushed;

/// A context is the number of its device, plus one: none is null.
void* context_of(int device) { return reinterpret_cast<void*>(static_cast<uintptr_t>(device) + 1); }

int get_device(int* device, int ordinal) {
  if (!Devices::get().has(ordinal)) return kInvalidDevice;
  *device = ordinal;
  return kSuccess;
}

int retain_context(void** context, int device) {
  if (!Devices::get().has(device)) return kInvalidDevice;
  Devices::get().use(device);
  *context = context_of(device);
  return kSuccess;
}

int push_context(void* context) {
  pushed.push_back(current_device);
  current_device = static_cast<int>(reinterpret_cast<uintptr_t>(context)) - 1;
  return kSuccess;
}

int pop_context(void** context) {
  if (pushed.empty()) return kInvalidContext;
  *context = context_of(current_device);
  current_device = pushed.back();
  pushed.pop_back();
  return kSuccess;
}

template <typename Function>
void* address(Function* function) {
  return reinterpret_cast<void*>(function);
}

void* find(std::string_view name) {
  if (name == "cuDeviceGet") return address(get_device);
  if (name == "cuDevicePrimaryCtxRetain") return address(retain_context);
  if (name == "cuCtxPushCurrent") return address(push_context);
  if (name == "cuCtxPopCurrent") return address(pop_context);
  return nullptr;
}

}  // namespace
}  // namespace simulator

using namespace simulator;

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** funcPtr, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* driverStatus) {
  if (symbol == nullptr || funcPtr == nullptr) return remember(cudaErrorInvalidValue);
  *funcPtr = find(symbol);
  if (driverStatus != nullptr)
    *driverStatus = *funcPtr == nullptr ? cudaDriverEntryPointSymbolNotFound : cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
