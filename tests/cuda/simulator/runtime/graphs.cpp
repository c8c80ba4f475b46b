// Graphs: not simulated, and every function says so.
#include <utility>

#include "call.hpp"
#include "streams.hpp"

using namespace simulator;

namespace {

cudaError_t refuse() {
  return call([] { return cudaErrorNotSupported; });
}

}  // namespace

cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) { return refuse(); }
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t*) { return refuse(); }
cudaError_t cudaGraphInstantiate(cudaGraphExec_t*, cudaGraph_t, unsigned long long) { return refuse(); }
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) { return refuse(); }
cudaError_t cudaGraphDestroy(cudaGraph_t) { return refuse(); }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) { return refuse(); }

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
    if (!is_null(stream) && !Streams::get().find(stream)) return cudaErrorInvalidResourceHandle;
    *pCaptureStatus = cudaStreamCaptureStatusNone;
    return cudaSuccess;
  });
}
