// Streams: queues of work, in their own order and in that of the null stream.
#include "streams.hpp"

#include <algorithm>
#include <simulator.hpp>
#include <thread>
#include <utility>

#include "call.hpp"

uint64_t CUstream_st::push(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  queue_.push_back(std::move(work));
  changed_.notify_all();
  return ++pushed_;
}

void CUstream_st::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this, count = pushed_] { return done_ >= count; });
}

void CUstream_st::wait(uint64_t count) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this, count] { return done_ >= count; });
}

bool CUstream_st::done(uint64_t count) {
  const std::lock_guard lock(mutex_);
  return done_ >= count;
}

bool CUstream_st::idle() {
  const std::lock_guard lock(mutex_);
  return done_ == pushed_;
}

void CUstream_st::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

bool CUstream_st::closed() {
  const std::lock_guard lock(mutex_);
  return closed_;
}

void CUstream_st::run() {
  simulator::on_stream = true;
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return closed_ || !queue_.empty(); });
    if (queue_.empty()) return;
    std::function<void()> work = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    work();
    work = nullptr;  // what it holds is let go before anybody hears that it is done
    lock.lock();
    ++done_;
    changed_.notify_all();
  }
}

namespace simulator {

Streams& Streams::get() {
  static Streams& streams = *new Streams;
  return streams;
}

cudaStream_t Streams::create(int device, unsigned flags, int priority) {
  auto stream = std::make_shared<CUstream_st>(device, flags, priority);
  {
    const std::lock_guard lock(mutex_);
    streams_.push_back(stream);
  }
  std::thread([this, stream] {
    stream->run();
    const std::lock_guard lock(mutex_);
    std::erase(streams_, stream);
  }).detach();
  return stream.get();
}

Streams::Stream Streams::find(cudaStream_t handle) {
  const std::lock_guard lock(mutex_);
  for (const Stream& stream : streams_)
    if (stream.get() == handle && !stream->closed()) return stream;
  return nullptr;
}

std::vector<Streams::Stream> Streams::all() {
  const std::lock_guard lock(mutex_);
  return streams_;
}

void Streams::wait_for(int device, bool nonblocking_too) {
  for (const Stream& stream : all())
    if (stream->device == device && (nonblocking_too || stream->blocking())) stream->wait();
}

void Streams::wait_for_all(int device) { wait_for(device, true); }

size_t Streams::count() {
  const auto streams = all();
  return static_cast<size_t>(
      std::count_if(streams.begin(), streams.end(), [](const Stream& stream) { return !stream->closed(); }));
}

void Streams::run_on_null(const std::function<void()>& work) {
  wait_for(current_device, false);
  const std::lock_guard lock(null_mutex_);
  on_stream = true;
  work();
  on_stream = false;
}

bool Streams::null_is_idle() {
  const auto streams = all();
  return std::all_of(streams.begin(), streams.end(), [](const Stream& stream) {
    return stream->device != current_device || !stream->blocking() || stream->idle();
  });
}

cudaError_t enqueue(cudaStream_t stream, std::function<void()> work) {
  return call([&] {
    if (is_null(stream)) {
      Streams::get().run_on_null(work);
      return cudaSuccess;
    }
    const auto found = Streams::get().find(stream);
    if (!found) return cudaErrorInvalidResourceHandle;
    found->push(std::move(work));
    return cudaSuccess;
  });
}

}  // namespace simulator

using namespace simulator;

cudaError_t cudaStreamCreate(cudaStream_t* pStream) {
  return cudaStreamCreateWithPriority(pStream, cudaStreamDefault, 0);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* pStream, unsigned flags) {
  return cudaStreamCreateWithPriority(pStream, flags, 0);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* pStream, unsigned flags, int priority) {
  return call([&] {
    if (pStream == nullptr || (flags & ~cudaStreamNonBlocking) != 0) return cudaErrorInvalidValue;
    int lowest = 0, highest = 0;
    cudaDeviceGetStreamPriorityRange(&lowest, &highest);
    *pStream = Streams::get().create(current_device, flags, std::clamp(priority, highest, lowest));
    return cudaSuccess;
  });
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return call([&] {
    const auto found = Streams::get().find(stream);
    if (!found) return cudaErrorInvalidResourceHandle;
    found->close();
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetFlags(cudaStream_t hStream, unsigned* flags) {
  return call([&] {
    if (flags == nullptr) return cudaErrorInvalidValue;
    const auto found = Streams::get().find(hStream);
    if (!found && !is_null(hStream)) return cudaErrorInvalidResourceHandle;
    *flags = found ? found->flags : cudaStreamDefault;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetPriority(cudaStream_t hStream, int* priority) {
  return call([&] {
    if (priority == nullptr) return cudaErrorInvalidValue;
    const auto found = Streams::get().find(hStream);
    if (!found && !is_null(hStream)) return cudaErrorInvalidResourceHandle;
    *priority = found ? found->priority : 0;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return call([&] {
    if (is_null(stream)) {
      Streams::get().run_on_null([] {});
      return cudaSuccess;
    }
    const auto found = Streams::get().find(stream);
    if (!found) return cudaErrorInvalidResourceHandle;
    found->wait();
    return cudaSuccess;
  });
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return call([&] {
    if (is_null(stream)) return Streams::get().null_is_idle() ? cudaSuccess : cudaErrorNotReady;
    const auto found = Streams::get().find(stream);
    if (!found) return cudaErrorInvalidResourceHandle;
    return found->idle() ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void* userData) {
  if (fn == nullptr) return remember(cudaErrorInvalidValue);
  return enqueue(stream, [fn, userData] { fn(userData); });
}

/// A thread's own mode, which is kept though nothing can be captured here.
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  static constinit thread_local cudaStreamCaptureMode of_thread = cudaStreamCaptureModeGlobal;
  return call([&] {
    if (mode == nullptr) return cudaErrorInvalidValue;
    std::swap(*mode, of_thread);
    return cudaSuccess;
  });
}
