// Events: marks in streams that others wait for.
#include "events.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <simulator.hpp>
#include <vector>

#include "call.hpp"
#include "streams.hpp"

namespace {

using Clock = std::chrono::steady_clock;

/// One recording of an event: a place in a stream. Who waits for it goes on waiting for this one when the event is
/// recorded again.
struct Mark {
  std::shared_ptr<CUstream_st> stream;  ///< null for the null stream, whose work has always been done
  uint64_t place = 0;
  Clock::time_point at;  ///< written by the stream, so only to be read once the mark is reached

  void wait() const {
    if (stream) stream->wait(place);
  }
  bool reached() const { return !stream || stream->done(place); }
};

}  // namespace

struct CUevent_st {
  int device;
  unsigned flags;
  std::shared_ptr<const Mark> mark;  ///< null if it was never recorded
};

namespace simulator {
namespace {

struct Events {
  static Events& get() {
    static Events& events = *new Events;
    return events;
  }
  std::mutex mutex;  ///< of the events too
  std::vector<std::unique_ptr<CUevent_st>> all;
};

auto find(Events& events, cudaEvent_t event) {
  return std::find_if(events.all.begin(), events.all.end(),
                      [event](const auto& known) { return known.get() == event; });
}

/// Gives the event as it is now to body(event), with no lock held.
template <typename Body>
cudaError_t with_mark(cudaEvent_t event, Body&& body) {
  Events& events = Events::get();
  CUevent_st copy;
  {
    const std::lock_guard lock(events.mutex);
    const auto at = find(events, event);
    if (at == events.all.end()) return cudaErrorInvalidResourceHandle;
    copy = **at;
  }
  return body(copy);
}

cudaError_t create(cudaEvent_t* event, unsigned flags) {
  constexpr unsigned kKnown = cudaEventBlockingSync | cudaEventDisableTiming | cudaEventInterprocess;
  const bool shared = (flags & cudaEventInterprocess) != 0, timed = (flags & cudaEventDisableTiming) == 0;
  if (event == nullptr || (flags & ~kKnown) != 0 || (shared && timed)) return cudaErrorInvalidValue;
  Events& events = Events::get();
  const std::lock_guard lock(events.mutex);
  *event = events.all.emplace_back(new CUevent_st{current_device, flags, nullptr}).get();
  return cudaSuccess;
}

cudaError_t record(cudaEvent_t event, cudaStream_t stream) {
  const auto found = Streams::get().find(stream);
  if (!found && !is_null(stream)) return cudaErrorInvalidResourceHandle;
  const auto mark = std::make_shared<Mark>();
  const auto reach = [mark] { mark->at = Clock::now(); };
  if (!found) Streams::get().run_on_null(reach);
  Events& events = Events::get();
  const std::lock_guard lock(events.mutex);
  const auto at = find(events, event);
  if (at == events.all.end()) return cudaErrorInvalidResourceHandle;
  if ((*at)->device != (found ? found->device : current_device)) return cudaErrorInvalidResourceHandle;
  if (found) {
    mark->stream = found;
    mark->place = found->push(reach);
  }
  (*at)->mark = mark;
  return cudaSuccess;
}

}  // namespace

size_t live_events() {
  Events& events = Events::get();
  const std::lock_guard lock(events.mutex);
  return events.all.size();
}

}  // namespace simulator

using namespace simulator;

cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return call([&] { return create(event, flags); });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return call([&] { return record(event, stream); });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return call([&] {
    return with_mark(event, [](const CUevent_st& found) {
      if (found.mark) found.mark->wait();
      return cudaSuccess;
    });
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return call([&] {
    return with_mark(event, [](const CUevent_st& found) {
      return !found.mark || found.mark->reached() ? cudaSuccess : cudaErrorNotReady;
    });
  });
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  return call([&] {
    if (ms == nullptr) return cudaErrorInvalidValue;
    return with_mark(start, [&](const CUevent_st& first) {
      return with_mark(end, [&](const CUevent_st& last) {
        for (const CUevent_st* event : {&first, &last})
          if (!event->mark || (event->flags & cudaEventDisableTiming) != 0) return cudaErrorInvalidResourceHandle;
        if (!first.mark->reached() || !last.mark->reached()) return cudaErrorNotReady;
        *ms = std::chrono::duration<float, std::milli>(last.mark->at - first.mark->at).count();
        return cudaSuccess;
      });
    });
  });
}

// Who waits for its mark goes on waiting.
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return call([&] {
    Events& events = Events::get();
    const std::lock_guard lock(events.mutex);
    const auto at = find(events, event);
    if (at == events.all.end()) return cudaErrorInvalidResourceHandle;
    events.all.erase(at);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  return call([&] {
    if (flags != 0) return cudaErrorInvalidValue;
    const auto into = Streams::get().find(stream);
    if (!is_null(stream) && !into) return cudaErrorInvalidResourceHandle;
    return with_mark(event, [stream](const CUevent_st& found) {
      if (!found.mark) return cudaSuccess;
      return enqueue(stream, [mark = found.mark] { mark->wait(); });
    });
  });
}
