// Memory that a device can read: its own, pinned, registered, and that of peers in other processes. Each is given back
// by its owner; running out of it throws OutOfMemory and changes nothing.
#pragma once

#include <cstddef>
#include <new>
#include <tiering/cuda/check.hpp>
#include <utility>

namespace tiering::cuda {

/// Makes a device the current one of this thread for as long as it lives. Other devices are left alone: cudaSetDevice
/// would make a context on the device that it goes back to, which takes hundreds of MiB there.
class DeviceScope {
 public:
  explicit DeviceScope(int device);
  /// For destructors: where the device cannot be made current any more, as at the end of a process, nothing changes.
  DeviceScope(int device, std::nothrow_t) noexcept;
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  cudaError_t enter(int device) noexcept;

  bool entered_ = false;
};

/// Puts a copy between any two memories on a stream.
inline void copy_async(void* into, const void* from, int64_t bytes, cudaStream_t stream, const char* what) {
  if (bytes > 0) check(cudaMemcpyAsync(into, from, static_cast<size_t>(bytes), cudaMemcpyDefault, stream), what);
}

/// A handle with one owner, given back by `Close`. Errors then are of earlier launches, or the driver is shutting down:
/// there is nobody to tell.
template <typename Handle, auto Close>
class Owned {
 public:
  Owned() = default;
  explicit Owned(Handle handle) : handle_(handle) {}
  Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, Handle{})) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Owned() {
    if (handle_ != Handle{}) forget(Close(handle_));
  }
  Handle get() const noexcept { return handle_; }

 private:
  Handle handle_ = Handle{};
};

/// Memory of so many bytes, given back by `Free`.
template <auto Free>
class OwnedMemory {
 public:
  std::byte* data() const noexcept { return static_cast<std::byte*>(memory_.get()); }
  int64_t size() const noexcept { return bytes_; }
  template <typename T>
  T* as() const noexcept {
    return static_cast<T*>(memory_.get());
  }

 protected:
  OwnedMemory() = default;
  explicit OwnedMemory(int64_t bytes) : bytes_(bytes) {}

  Owned<void*, Free> memory_;
  int64_t bytes_ = 0;
};

/// Memory of a device.
class DeviceMemory : public OwnedMemory<cudaFree> {
 public:
  /// Small allocations are cut from common blocks of this size, and a peer is always given whole blocks.
  static constexpr int64_t kBlockBytes = int64_t{2} << 20;

  DeviceMemory() = default;
  /// On the current device. `shared`: in blocks of its own, so that nothing else is shared with it.
  explicit DeviceMemory(int64_t bytes, bool shared = false);
  /// For peers in other processes: what PeerMemory opens there.
  cudaIpcMemHandle_t share() const;
};

/// Page-locked host memory that every device can read.
class PinnedMemory : public OwnedMemory<cudaFreeHost> {
 public:
  PinnedMemory() = default;
  explicit PinnedMemory(int64_t bytes);
};

/// Page-locks host memory of somebody else's (anonymous or shared between processes, also where this one can only read
/// it) for as long as it lives. The memory must outlive it.
class Registration {
 public:
  Registration() = default;
  /// `registers`: memory of a device on the bus, such as a drive's doorbells.
  Registration(void* memory, int64_t bytes, bool registers = false);

  std::byte* device_address() const noexcept { return device_; }

 private:
  Owned<void*, cudaHostUnregister> memory_;
  std::byte* device_ = nullptr;
};

/// A peer's DeviceMemory, opened on the current device. Throws CudaError where the two cannot reach each other.
class PeerMemory : public OwnedMemory<cudaIpcCloseMemHandle> {
 public:
  PeerMemory() = default;
  explicit PeerMemory(const cudaIpcMemHandle_t& handle) {
    void* memory = nullptr;
    check(cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess), "opening the memory of a peer");
    memory_ = decltype(memory_)(memory);
  }
};

/// A stream that does not wait for the legacy default stream.
class GpuStream {
 public:
  GpuStream() {
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
    stream_ = decltype(stream_)(stream);
  }
  cudaStream_t get() const noexcept { return stream_.get(); }
  void synchronize() const { check(cudaStreamSynchronize(stream_.get()), "waiting for the GPU"); }

 private:
  Owned<cudaStream_t, cudaStreamDestroy> stream_;
};

/// A point in a stream; waiting for it lets the processor sleep.
class GpuEvent {
 public:
  GpuEvent() {
    cudaEvent_t event = nullptr;
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync), "making an event");
    event_ = decltype(event_)(event);
  }
  cudaEvent_t get() const noexcept { return event_.get(); }
  void record(cudaStream_t stream) const { check(cudaEventRecord(event_.get(), stream), "marking a stream"); }
  /// Waits on the host.
  void wait() const { check(cudaEventSynchronize(event_.get()), "waiting for the GPU"); }

 private:
  Owned<cudaEvent_t, cudaEventDestroy> event_;
};

/// Lets what is put on `stream` from now on wait for an event.
inline void wait_event(cudaStream_t stream, const GpuEvent& event) {
  check(cudaStreamWaitEvent(stream, event.get(), 0), "ordering streams");
}

/// Grows and never shrinks: memory of a device for batches that come one after the other.
template <typename T>
class Scratch {
 public:
  T* data() const noexcept { return memory_.template as<T>(); }
  int64_t capacity() const noexcept { return capacity_; }
  /// Room for `count`; what was there is lost when it grows. What runs on the device must not use it any more.
  T* require(int64_t count) {
    if (count > capacity_) {
      memory_ = DeviceMemory();  // first: both may not fit
      capacity_ = 0;
      memory_ = DeviceMemory(count * static_cast<int64_t>(sizeof(T)));
      capacity_ = count;
    }
    return data();
  }
  /// With a quarter more where it grows: for counts that vary, so that not every largest one so far takes memory anew.
  T* require_roomy(int64_t count) { return require(count > capacity_ ? count + count / 4 : count); }

 private:
  DeviceMemory memory_;
  int64_t capacity_ = 0;
};

}  // namespace tiering::cuda
