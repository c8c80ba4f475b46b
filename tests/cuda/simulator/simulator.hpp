// What the simulator offers in addition to the interface of CUDA: to tests, settings and counters; to its own headers, a
// way to put work on a stream.
#pragma once

#include <cuda_runtime_api.h>

#include <cstring>
#include <functional>
#include <vector>

#pragma GCC visibility push(default)  // tests find these in a module through ctypes
extern "C" {

/// Sets the bytes of memory of each device, 1 GiB at first; what is allocated stays.
void simulator_set_memory(size_t bytes);

/// Sets how many bytes of host memory can be registered at once; at first there is no limit.
void simulator_set_registrable(size_t bytes);

/// Sets how devices see what drives write: "ordered", as at first; "flushed": when the host flushes; "none".
void simulator_set_drive_writes(const char* how);

/// Returns how much this process has not given back: "allocations" and "bytes" of cudaMalloc, "host" allocations,
/// "registered" ranges, "ipc" mappings, "streams"; "contexts": devices that it has used. SIZE_MAX for any other word.
size_t simulator_live(const char* what);

/// Returns the calling thread's current device.
int simulator_device();

/// Returns the calling thread's cudaStreamCaptureMode.
int simulator_capture_mode();

/// Runs a kernel by its symbol: blocks, threads of each, addresses of its arguments and their bytes. Not 0: the launch
/// fails.
using simulator_interpreter = int (*)(const char* kernel, unsigned blocks, unsigned threads,
                                      const void* const* arguments, const size_t* bytes, size_t count);

/// Lets `run` run the kernels from now on, in the thread that launches them, once the work that was put on the stream
/// before is done; null: the functions that were compiled for the processor.
void simulator_interpret(simulator_interpreter run);

/// Finds the memory of the runtime that an address lies in; returns 0 if there is none.
int simulator_find(const void* address, void** begin, size_t* bytes);

}  // extern "C"
#pragma GCC visibility pop

namespace simulator {

/// What the drives of this process do when the host flushes their writes.
inline std::function<void()> flush_drives;
/// Whether devices see what drives write when the host flushes.
bool writes_are_flushed();

/// Puts work on a stream, as an asynchronous function of the runtime does. The null stream has done it when this returns.
cudaError_t enqueue(cudaStream_t stream, std::function<void()> work);

/// A kernel as an interpreter runs it.
struct KernelCall {
  const void* function;
  std::vector<const void*> arguments;
  std::vector<size_t> bytes;
};

/// Puts a kernel on the stream of a launch; `thread` is what one thread of the kernel does.
cudaError_t launch(const cudaLaunchConfig_t& config, std::function<void()> thread, const KernelCall& kernel);

/// Calls a function of CUB: without temporary memory it only says how much it needs, with it it puts work on a stream.
template <typename Work>
cudaError_t call_cub(void* temporary, size_t& bytes, cudaStream_t stream, Work work) {
  constexpr size_t kBytes = 1021;  // not round, so that a caller who rounds or guesses is found out
  if (temporary != nullptr && bytes < kBytes) return cudaErrorInvalidValue;
  bytes = kBytes;
  if (temporary == nullptr) return cudaSuccess;
  return enqueue(stream, [=] {
    std::memset(temporary, 0xcd, kBytes);  // CUB writes there too: nothing else may lie there
    work();
  });
}

}  // namespace simulator
