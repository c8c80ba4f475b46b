// Streams: a queue and a thread each.
#pragma once

#include <cuda_runtime_api.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

/// A stream. Its thread ends when it is closed and has done all; it is detached, so that a program may end with streams
/// that nobody destroyed.
struct CUstream_st {
  CUstream_st(int device, unsigned flags, int priority) : device(device), flags(flags), priority(priority) {}

  uint64_t push(std::function<void()> work);  ///< how many have been pushed then
  void wait();                                ///< until all has been done that was pushed before
  void wait(uint64_t count);                  ///< until so many have been done
  bool idle();
  bool done(uint64_t count);
  void close();
  bool closed();
  void run();  ///< what its thread does
  bool blocking() const { return (flags & cudaStreamNonBlocking) == 0; }

  const int device;
  const unsigned flags;
  const int priority;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  uint64_t pushed_ = 0, done_ = 0;
  bool closed_ = false;
};

namespace simulator {

class Streams {
 public:
  using Stream = std::shared_ptr<CUstream_st>;
  static Streams& get();

  cudaStream_t create(int device, unsigned flags, int priority);
  Stream find(cudaStream_t handle);  ///< null if there is none or it was destroyed
  void wait_for_all(int device);
  size_t count();

  /// The null stream: does the work here and now, behind all that was put on blocking streams of the current device.
  void run_on_null(const std::function<void()>& work);
  bool null_is_idle();

 private:
  void wait_for(int device, bool nonblocking_too);
  std::vector<Stream> all();

  std::mutex mutex_, null_mutex_;
  std::vector<Stream> streams_;  ///< destroyed ones too, until they have done all
};

inline bool is_null(cudaStream_t stream) { return stream == nullptr || stream == cudaStreamLegacy; }

}  // namespace simulator
