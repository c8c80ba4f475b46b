// What the simulator offers beside the interface of CUDA: to tests, settings and counters; to its own headers, a way to
// put work on a stream.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <vector>

#pragma GCC visibility push(default)  // tests find these in a module through ctypes
extern "C" {

/// Sets the bytes of memory of each device from now on; what is allocated stays.
void simulator_set_memory(size_t bytes);

/// Sets how many bytes of host memory can be registered at once; at first there is no limit.
void simulator_set_registrable(size_t bytes);

/// What is alive in this process: "allocations" and "bytes" of cudaMalloc, "host" allocations, "registered" ranges,
/// "ipc" mappings, "streams", "events"; "contexts": devices that it has used. SIZE_MAX for any other word.
size_t simulator_live(const char* what);

/// Runs a kernel by its symbol: blocks, threads of each, and where its arguments lie and how long they are. Not 0: the
/// launch fails.
using simulator_interpreter = int (*)(const char* kernel, unsigned blocks, unsigned threads,
                                      const void* const* arguments, const size_t* bytes, size_t count);

/// Kernels are run by `run` from now on, in the thread that launches them, once what was put on the stream before is done;
/// null: by the functions that were compiled for the processor.
void simulator_interpret(simulator_interpreter run);

/// The memory of the runtime that an address lies in; 0 if none.
int simulator_find(const void* address, void** begin, size_t* bytes);

/// The calling thread's current device.
int simulator_device();

/// The calling thread's cudaStreamCaptureMode.
int simulator_capture_mode();

}  // extern "C"
#pragma GCC visibility pop

namespace simulator {

/// Puts work on a stream, as an asynchronous function of the runtime does. On the null stream it has been done when
/// this returns.
cudaError_t enqueue(cudaStream_t stream, std::function<void()> work);

/// A kernel as an interpreter is told of it.
struct Called {
  const void* kernel;
  std::vector<const void*> arguments;
  std::vector<size_t> bytes;
};

/// Puts a kernel on the stream of a launch; `thread` is what one thread of the kernel does.
cudaError_t launch(const cudaLaunchConfig_t* config, std::function<void()> thread, const Called& called);

}  // namespace simulator
