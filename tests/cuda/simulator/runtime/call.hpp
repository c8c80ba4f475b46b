// What every function of the interface has in common: it is refused where there is no device, in a process forked from
// one that uses devices and in a host function, and its error is remembered.
#pragma once

#include <cuda_runtime_api.h>

#include "devices.hpp"

namespace simulator {

/// True in a thread while it runs what was put on a stream: there no function of the runtime may be called.
inline constinit thread_local bool on_stream = false;

/// Keeps the error for cudaGetLastError and gives it back.
cudaError_t remember(cudaError_t error);

/// What only asks, or says which device is meant.
template <typename Body>
cudaError_t ask(Body&& body) {
  if (on_stream) return remember(cudaErrorNotPermitted);
  const cudaError_t state = Devices::get().state();
  return remember(state == cudaSuccess ? body() : state);
}

/// All else makes a context on the current device, if there is none.
template <typename Body>
cudaError_t call(Body&& body) {
  return ask([&] {
    Devices::get().use(current_device);
    return body();
  });
}

}  // namespace simulator
