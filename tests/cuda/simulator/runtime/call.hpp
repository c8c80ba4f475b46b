// What every function of the interface has in common: it is refused where there is no device and in a process forked from
// one that uses devices, and its error is remembered.
#pragma once

#include <cuda_runtime_api.h>

namespace simulator {

inline constinit thread_local int current_device = 0;

bool has_device(int device);
bool can_access(int device, int peer);
/// Whether other processes can open the memory of devices.
bool has_ipc();

/// Makes a context on a device, unless there is one.
void use_device(int device);
/// Returns the number of devices that this process has a context on.
size_t used_devices();

/// Returns why no function works; cudaSuccess where they do.
cudaError_t device_state();
/// Keeps an error for cudaGetLastError and returns it.
cudaError_t remember(cudaError_t error);

/// Runs a function that makes no context.
template <typename Body>
cudaError_t ask(Body&& body) {
  const cudaError_t state = device_state();
  return remember(state == cudaSuccess ? body() : state);
}

/// Runs a function that makes a context on the current device.
template <typename Body>
cudaError_t call(Body&& body) {
  return ask([&] {
    use_device(current_device);
    return body();
  });
}

}  // namespace simulator
