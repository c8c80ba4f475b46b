// Streams, events, which are places in streams, and kernels.
#include "streams.hpp"

#include <cuda_runtime.h>
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "call.hpp"

struct CUstream_st {
  const int device = simulator::current_device;
  bool destroyed = false;

  /// Adds work, which is done in this order; null ends the stream's thread.
  void push(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
    ++pushed_;
    changed_.notify_all();
  }
  uint64_t pushed() {
    const std::lock_guard lock(mutex_);
    return pushed_;
  }
  /// Waits until so many pieces of work have been done.
  void wait(uint64_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ >= count; });
  }
  void run() {
    std::unique_lock lock(mutex_);
    for (bool open = true; open;) {
      changed_.wait(lock, [&] { return !queue_.empty(); });
      std::function<void()> work = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      open = work != nullptr;
      if (open) work();
      work = nullptr;  // what it holds is let go before anybody hears that it is done
      lock.lock();
      ++done_;
      changed_.notify_all();
    }
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  uint64_t pushed_ = 0, done_ = 0;
};

struct CUevent_st {
  const int device = simulator::current_device;
  std::mutex mutex;
  std::shared_ptr<CUstream_st> stream;  ///< null: not recorded, or on the null stream, which has done all
  uint64_t count = 0;                   ///< pieces of the stream's work before the event

  /// Returns a function that waits for the last recording so far.
  std::function<void()> waiting() {
    const std::lock_guard lock(mutex);
    return [stream = stream, count = count] {
      if (stream) stream->wait(count);
    };
  }
};

namespace simulator {
namespace {

using Stream = std::shared_ptr<CUstream_st>;

struct Streams {
  std::mutex mutex;         ///< of the list
  std::mutex null_mutex;    ///< held while the null stream's work is done
  std::vector<Stream> all;  ///< destroyed ones too, until they have done all
  std::atomic<simulator_interpreter> interpreter{nullptr};

  static Streams& get() {
    static Streams& streams = *new Streams;  // never destroyed: threads of streams may outlive main
    return streams;
  }
};

/// Calls body(stream), with null for the null stream.
template <typename Body>
cudaError_t with_stream(cudaStream_t handle, Body&& body) {
  return call([&] {
    Stream found;
    {
      const std::lock_guard lock(Streams::get().mutex);
      for (const Stream& stream : Streams::get().all)
        if (stream.get() == handle && !stream->destroyed) found = stream;
    }
    return found || handle == nullptr ? body(found) : cudaErrorInvalidResourceHandle;
  });
}

/// Every worker begins with a block of its own, so that even a grid of two blocks is run by two threads, and goes on
/// with those that are left.
void run_grid(dim3 grid, dim3 block, const std::function<void()>& thread) {
  const unsigned workers = std::min(grid.x, std::clamp(std::thread::hardware_concurrency(), 2U, 4U));
  std::atomic<unsigned> next{workers};
  const auto work = [&](unsigned first) {
    gridDim = grid;
    blockDim = block;
    for (blockIdx.x = first; blockIdx.x < grid.x; blockIdx.x = next.fetch_add(1, std::memory_order_relaxed))
      for (threadIdx.x = 0; threadIdx.x < block.x; ++threadIdx.x) thread();
  };
  std::vector<std::jthread> others;
  for (unsigned worker = 1; worker < workers; ++worker) others.emplace_back(work, worker);
  work(0);
}

cudaError_t interpret(simulator_interpreter run, const cudaLaunchConfig_t& config, const KernelCall& kernel) {
  Dl_info symbol{};
  if (dladdr(kernel.function, &symbol) == 0 || symbol.dli_saddr != kernel.function)
    return cudaErrorInvalidDeviceFunction;
  if (const cudaError_t error = cudaStreamSynchronize(config.stream); error != cudaSuccess) return error;
  const int failed = run(symbol.dli_sname, config.gridDim.x, config.blockDim.x, kernel.arguments.data(),
                         kernel.bytes.data(), kernel.arguments.size());
  return failed == 0 ? cudaSuccess : cudaErrorLaunchFailure;
}

}  // namespace

void wait_for_streams() {
  std::unique_lock lock(Streams::get().mutex);
  const std::vector<Stream> streams = Streams::get().all;
  lock.unlock();
  for (const Stream& stream : streams) stream->wait(stream->pushed());
}

size_t count_streams() {
  const std::lock_guard lock(Streams::get().mutex);
  const auto& all = Streams::get().all;
  return static_cast<size_t>(
      std::count_if(all.begin(), all.end(), [](const Stream& stream) { return !stream->destroyed; }));
}

cudaError_t enqueue(cudaStream_t stream, std::function<void()> work) {
  return with_stream(stream, [&](const Stream& found) {
    if (found) {
      found->push(std::move(work));
    } else {
      const std::lock_guard lock(Streams::get().null_mutex);
      work();
    }
    return cudaSuccess;
  });
}

cudaError_t launch(const cudaLaunchConfig_t& config, std::function<void()> thread, const KernelCall& kernel) {
  return with_stream(config.stream, [&](const Stream& stream) {
    const dim3 grid = config.gridDim, block = config.blockDim;
    if (grid.x < 1 || grid.x > 0x7fffffff || block.x < 1 || block.x > 1024) return cudaErrorInvalidConfiguration;
    if (stream && stream->device != current_device) return cudaErrorInvalidResourceHandle;
    if (const auto run = Streams::get().interpreter.load()) return interpret(run, config, kernel);
    return enqueue(config.stream, [grid, block, thread = std::move(thread)] { run_grid(grid, block, thread); });
  });
}

}  // namespace simulator

using namespace simulator;

void simulator_interpret(simulator_interpreter run) { Streams::get().interpreter = run; }

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return call([&] {
    const Stream made = std::make_shared<CUstream_st>();
    const std::lock_guard lock(Streams::get().mutex);
    Streams::get().all.push_back(made);
    // Detached, so that a program may end with streams that nobody destroyed.
    std::thread([made] {
      made->run();
      const std::lock_guard ended(Streams::get().mutex);
      std::erase(Streams::get().all, made);
    }).detach();
    *stream = made.get();
    return cudaSuccess;
  });
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return with_stream(stream, [](const Stream& found) {
    if (!found) return cudaErrorInvalidResourceHandle;
    const std::lock_guard lock(Streams::get().mutex);
    found->destroyed = true;
    found->push(nullptr);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return with_stream(stream, [](const Stream& found) {
    if (found) found->wait(found->pushed());
    return cudaSuccess;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return enqueue(stream, event->waiting());
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return call([&] {
    *event = new CUevent_st;
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return with_stream(stream, [&](const Stream& found) {
    if (event->device != (found ? found->device : current_device)) return cudaErrorInvalidResourceHandle;
    const std::lock_guard lock(event->mutex);
    event->stream = found;
    event->count = found ? found->pushed() : 0;
    return cudaSuccess;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return call([&] {
    event->waiting()();
    return cudaSuccess;
  });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return call([&] {
    delete event;
    return cudaSuccess;
  });
}
