// Graphs: what is put on a stream while it is captured, run again in that order.
#include <atomic>
#include <functional>
#include <simulator.hpp>
#include <utility>
#include <vector>

#include "call.hpp"
#include "streams.hpp"

struct CUgraph_st {
  std::vector<std::function<void()>> work;
};

struct CUgraphExec_st {
  explicit CUgraphExec_st(const CUgraph_st& graph) : work(graph.work) { ++live; }
  ~CUgraphExec_st() { --live; }
  CUgraphExec_st(const CUgraphExec_st&) = delete;
  CUgraphExec_st& operator=(const CUgraphExec_st&) = delete;

  const std::vector<std::function<void()>> work;
  static inline std::atomic<size_t> live{0};
};

size_t simulator::live_graphs() { return CUgraphExec_st::live; }

using namespace simulator;

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  return call([&] {
    if (is_null(stream)) return cudaErrorStreamCaptureUnsupported;
    const auto found = Streams::get().find(stream);
    if (!found) return cudaErrorInvalidResourceHandle;
    return found->begin_capture() ? cudaSuccess : cudaErrorIllegalState;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* pGraph) {
  return call([&] {
    if (pGraph == nullptr) return cudaErrorInvalidValue;
    *pGraph = nullptr;
    const auto found = Streams::get().find(stream);
    if (!found) return cudaErrorInvalidResourceHandle;
    if (!found->capturing()) return cudaErrorIllegalState;
    CUgraph_st graph;
    if (!found->end_capture(graph.work)) return cudaErrorStreamCaptureInvalidated;
    *pGraph = new CUgraph_st(std::move(graph));
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* pGraphExec, cudaGraph_t graph, unsigned long long) {
  return call([&] {
    if (pGraphExec == nullptr || graph == nullptr) return cudaErrorInvalidValue;
    *pGraphExec = new CUgraphExec_st(*graph);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graphExec, cudaStream_t stream) {
  if (graphExec == nullptr) return remember(cudaErrorInvalidValue);
  return enqueue(stream, [work = graphExec->work] {
    for (const auto& step : work) step();
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return call([&] {
    delete graph;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graphExec) {
  return call([&] {
    delete graphExec;
    return cudaSuccess;
  });
}

/// A thread's own mode, which is kept though nothing is captured here.
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  static constinit thread_local cudaStreamCaptureMode of_thread = cudaStreamCaptureModeGlobal;
  return call([&] {
    if (mode == nullptr) return cudaErrorInvalidValue;
    std::swap(*mode, of_thread);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* pCaptureStatus) {
  return call([&] {
    if (pCaptureStatus == nullptr) return cudaErrorInvalidValue;
    const auto found = Streams::get().find(stream);
    if (!is_null(stream) && !found) return cudaErrorInvalidResourceHandle;
    *pCaptureStatus = found && found->capturing() ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
  });
}
