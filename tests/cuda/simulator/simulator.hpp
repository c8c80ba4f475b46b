// What the simulator offers beside the interface of CUDA: to tests, settings and counters; to its own headers, a way to
// put work on a stream.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

#pragma GCC visibility push(default)  // tests find these in a module through ctypes
extern "C" {

/// Sets the bytes of memory of each device from now on; what is allocated stays.
void simulator_set_memory(size_t bytes);

/// Sets how many bytes of host memory can be registered at once; at first there is no limit.
void simulator_set_registrable(size_t bytes);

/// What is alive in this process: "allocations" and "bytes" of cudaMalloc, "host" allocations, "registered" ranges,
/// "ipc" mappings, "streams", "events", "graphs"; "contexts": devices that it has used. SIZE_MAX for any other word.
size_t simulator_live(const char* what);

/// The calling thread's current device.
int simulator_device();

}  // extern "C"
#pragma GCC visibility pop

namespace simulator {

/// Puts work on a stream, as an asynchronous function of the runtime does. On the null stream it has been done when
/// this returns.
cudaError_t enqueue(cudaStream_t stream, std::function<void()> work);

/// Puts a kernel on the stream of a launch; `thread` is what one thread of the kernel does.
cudaError_t launch(const cudaLaunchConfig_t* config, std::function<void()> thread);

}  // namespace simulator
