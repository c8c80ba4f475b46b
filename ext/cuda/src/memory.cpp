#include <map>
#include <mutex>
#include <tiering/cuda/memory.hpp>

namespace tiering::cuda {

namespace {

void check_memory(cudaError_t code, const char* what, int64_t wanted, bool of_device) {
  if (code != cudaErrorMemoryAllocation) return check(code, what);
  forget(code);
  size_t free = 0, total = 0;
  const bool known = of_device && forget(cudaMemGetInfo(&free, &total)) == cudaSuccess;
  throw OutOfMemory(code, what, wanted, known ? static_cast<int64_t>(free) : -1);
}

/// The driver's call that the runtime lacks: a device made current and given up again, without a look at the one before.
struct Driver {
  int (*get_device)(int* device, int ordinal) = nullptr;
  int (*retain_context)(void** context, int device) = nullptr;
  int (*push_context)(void* context) = nullptr;
  int (*pop_context)(void** context) = nullptr;

  bool complete() const {
    return get_device != nullptr && retain_context != nullptr && push_context != nullptr && pop_context != nullptr;
  }
  static const Driver& get() {
    static const Driver driver;
    return driver;
  }

 private:
  Driver() {
    find("cuDeviceGet", get_device);
    find("cuDevicePrimaryCtxRetain", retain_context);
    find("cuCtxPushCurrent", push_context);
    find("cuCtxPopCurrent", pop_context);
  }

  template <typename Function>
  static void find(const char* name, Function& function) {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
#if CUDART_VERSION >= 12050
    const cudaError_t code = cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result);
#else
    const cudaError_t code = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &result);
#endif
    if (forget(code) == cudaSuccess && result == cudaDriverEntryPointSuccess)
      function = reinterpret_cast<Function>(found);
  }
};

/// The context of a device that the runtime uses too. It is kept for as long as the process
/// runs, as the runtime keeps it.
cudaError_t primary_context(int device, void*& context) {
  static std::mutex mutex;
  static std::map<int, void*> contexts;
  const Driver& driver = Driver::get();
  const std::lock_guard lock(mutex);
  void*& known = contexts[device];
  int code = 0, found = 0;
  if (known == nullptr) code = driver.get_device(&found, device);
  if (known == nullptr && code == 0) code = driver.retain_context(&known, found);
  context = known;
  return static_cast<cudaError_t>(code);  // both number errors alike
}

}  // namespace

cudaError_t DeviceScope::enter(int device) noexcept {
  int before = 0;
  if (const cudaError_t code = cudaGetDevice(&before); code != cudaSuccess) return code;
  if (before == device) return cudaSuccess;
  const Driver& driver = Driver::get();
  if (!driver.complete()) return cudaErrorNotSupported;
  void* context = nullptr;
  if (const cudaError_t code = primary_context(device, context); code != cudaSuccess) return code;
  const auto code = static_cast<cudaError_t>(driver.push_context(context));
  entered_ = code == cudaSuccess;
  return code;
}

DeviceScope::DeviceScope(int device) { check(enter(device), "choosing the device"); }
DeviceScope::DeviceScope(int device, std::nothrow_t) noexcept { forget(enter(device)); }

DeviceScope::~DeviceScope() {
  void* context = nullptr;
  if (entered_) (void)Driver::get().pop_context(&context);
}

DeviceMemory::DeviceMemory(int64_t bytes, bool shared) : OwnedMemory(bytes) {
  if (bytes == 0) return;
  if (shared) bytes = (bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
  void* memory = nullptr;
  check_memory(cudaMalloc(&memory, static_cast<size_t>(bytes)), "memory of the GPU", bytes, true);
  memory_ = decltype(memory_)(memory);
}

cudaIpcMemHandle_t DeviceMemory::share() const {
  cudaIpcMemHandle_t handle;
  check(cudaIpcGetMemHandle(&handle, memory_.get()), "sharing memory of the GPU with other processes");
  return handle;
}

PinnedMemory::PinnedMemory(int64_t bytes) : OwnedMemory(bytes) {
  if (bytes == 0) return;
  void* memory = nullptr;
  check_memory(cudaHostAlloc(&memory, static_cast<size_t>(bytes), cudaHostAllocPortable | cudaHostAllocMapped),
               "pinned host memory", bytes, false);
  memory_ = decltype(memory_)(memory);
}

namespace {

/// Memory that this process can only read takes a flag of its own, which not every device has.
cudaError_t lock(void* memory, size_t bytes, bool registers) {
  constexpr unsigned kFlags = cudaHostRegisterPortable | cudaHostRegisterMapped;
  if (registers) return forget(cudaHostRegister(memory, bytes, kFlags | cudaHostRegisterIoMemory));
  const cudaError_t code = forget(cudaHostRegister(memory, bytes, kFlags));
  if (code == cudaSuccess) return code;
  return forget(cudaHostRegister(memory, bytes, kFlags | cudaHostRegisterReadOnly)) == cudaSuccess ? cudaSuccess : code;
}

}  // namespace

Registration::Registration(void* memory, int64_t bytes, bool registers) {
  if (bytes == 0) return;
  check_memory(lock(memory, static_cast<size_t>(bytes), registers), "page-locking host memory", bytes, false);
  memory_ = decltype(memory_)(memory);
  void* there = nullptr;
  check(cudaHostGetDevicePointer(&there, memory, 0), "finding locked host memory on the GPU");
  device_ = static_cast<std::byte*>(there);
}

}  // namespace tiering::cuda
