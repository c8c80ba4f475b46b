#include <string>
#include <tiering/cuda/memory.hpp>

namespace tiering::cuda {

namespace detail {
// Errors while giving back are of earlier launches, or the driver is shutting down: there is nobody to tell.
void free_device(void* memory) noexcept { (void)cudaFree(memory); }
void free_pinned(void* memory) noexcept { (void)cudaFreeHost(memory); }
void unregister(void* memory) noexcept { (void)cudaHostUnregister(memory); }
void close_peer(void* memory) noexcept { (void)cudaIpcCloseMemHandle(memory); }
void destroy_stream(cudaStream_t stream) noexcept { (void)cudaStreamDestroy(stream); }
void destroy_event(cudaEvent_t event) noexcept { (void)cudaEventDestroy(event); }
}  // namespace detail

namespace {

void check_memory(cudaError_t code, const char* what, int64_t wanted, bool of_device) {
  if (code == cudaSuccess) return;
  (void)cudaGetLastError();
  if (code != cudaErrorMemoryAllocation) throw CudaError(code, what);
  size_t free = 0, total = 0;
  const bool known = of_device && cudaMemGetInfo(&free, &total) == cudaSuccess;
  throw OutOfMemory(code, what, wanted, known ? static_cast<int64_t>(free) : -1);
}

}  // namespace

namespace {

/// Whether this process has a context on a device. Only the driver knows without making one.
bool in_use([[maybe_unused]] int device) {
#ifndef TIERING_SIMULATED
  using State = int (*)(int device, unsigned* flags, int* active);
  static const State state = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
#if CUDART_VERSION >= 12050
    const cudaError_t code =
        cudaGetDriverEntryPointByVersion("cuDevicePrimaryCtxGetState", &found, 12000, cudaEnableDefault, &result);
#else
    const cudaError_t code = cudaGetDriverEntryPoint("cuDevicePrimaryCtxGetState", &found, cudaEnableDefault, &result);
#endif
    return code == cudaSuccess ? reinterpret_cast<State>(found) : nullptr;
  }();
  unsigned flags = 0;
  int active = 0;
  return state != nullptr && state(device, &flags, &active) == 0 && active != 0;
#else
  return true;
#endif
}

}  // namespace

DeviceScope::DeviceScope(int device) {
  check(cudaGetDevice(&before_), "finding the device");
  if (before_ == device) return;
  check(cudaSetDevice(device), "choosing the device");
  changed_ = true;
}

DeviceScope::~DeviceScope() {
  if (changed_ && in_use(before_)) (void)cudaSetDevice(before_);
}

DeviceMemory::DeviceMemory(int64_t bytes, bool shared) : bytes_(bytes) {
  if (bytes == 0) return;
  if (shared) bytes = (bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
  void* memory = nullptr;
  check_memory(cudaMalloc(&memory, static_cast<size_t>(bytes)), "memory of the GPU", bytes, true);
  memory_ = Owned<void*, detail::free_device>(memory);
}

cudaIpcMemHandle_t DeviceMemory::share() const {
  cudaIpcMemHandle_t handle;
  check(cudaIpcGetMemHandle(&handle, memory_.get()), "sharing memory of the GPU with other processes");
  return handle;
}

PinnedMemory::PinnedMemory(int64_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  void* memory = nullptr;
  check_memory(cudaHostAlloc(&memory, static_cast<size_t>(bytes), cudaHostAllocPortable | cudaHostAllocMapped),
               "pinned host memory", bytes, false);
  memory_ = Owned<void*, detail::free_pinned>(memory);
}

Registration::Registration(void* memory, int64_t bytes) {
  if (bytes == 0) return;
  check_memory(cudaHostRegister(memory, static_cast<size_t>(bytes), cudaHostRegisterPortable | cudaHostRegisterMapped),
               "page-locking host memory", bytes, false);
  memory_ = Owned<void*, detail::unregister>(memory);
  void* there = nullptr;
  check(cudaHostGetDevicePointer(&there, memory, 0), "finding locked host memory on the GPU");
  device_ = static_cast<std::byte*>(there);
}

PeerMemory::PeerMemory(const cudaIpcMemHandle_t& handle) {
  void* memory = nullptr;
  check(cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess), "opening the memory of a peer");
  memory_ = Owned<void*, detail::close_peer>(memory);
}

GpuStream::GpuStream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
  stream_ = Owned<cudaStream_t, detail::destroy_stream>(stream);
}

void GpuStream::synchronize() const { check(cudaStreamSynchronize(stream_.get()), "waiting for the GPU"); }

GpuEvent::GpuEvent() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync), "making an event");
  event_ = Owned<cudaEvent_t, detail::destroy_event>(event);
}

void GpuEvent::record(cudaStream_t stream) const { check(cudaEventRecord(event_.get(), stream), "marking a stream"); }
void wait_event(cudaStream_t stream, const GpuEvent& event) {
  check(cudaStreamWaitEvent(stream, event.get(), 0), "ordering streams");
}
void GpuEvent::wait() const { check(cudaEventSynchronize(event_.get()), "waiting for the GPU"); }

}  // namespace tiering::cuda
