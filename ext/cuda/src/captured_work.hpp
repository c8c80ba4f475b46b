// What was put on a stream once, put there again by one call (a CUDA graph).
#pragma once

#include <cuda_runtime_api.h>

#include <tiering/cuda/check.hpp>
#include <tiering/cuda/memory.hpp>

namespace tiering::cuda {

class CapturedWork {
 public:
  bool empty() const noexcept { return ready_.get() == nullptr; }
  void clear() { ready_ = {}; }

  /// Calls `work`, which puts kernels and copies on the stream; they are kept instead of run. It must neither wait nor
  /// allocate. Other threads are not hindered.
  template <typename Work>
  void capture(cudaStream_t stream, Work&& work) {
    clear();
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), "beginning to keep a batch's work");
    try {
      work();
    } catch (...) {
      (void)end(stream);
      (void)cudaGetLastError();
      throw;
    }
    const Graph graph = end(stream);
    cudaGraphExec_t ready = nullptr;
    check(graph.get() == nullptr ? cudaErrorUnknown : cudaGraphInstantiate(&ready, graph.get(), 0),
          "keeping a batch's work");
    ready_ = Ready(ready);
  }

  void launch(cudaStream_t stream) const { check(cudaGraphLaunch(ready_.get(), stream), "launching a batch's work"); }

 private:
  static void destroy(cudaGraph_t graph) noexcept { (void)cudaGraphDestroy(graph); }
  static void destroy_ready(cudaGraphExec_t ready) noexcept { (void)cudaGraphExecDestroy(ready); }
  using Graph = Owned<cudaGraph_t, destroy>;
  using Ready = Owned<cudaGraphExec_t, destroy_ready>;

  static Graph end(cudaStream_t stream) {
    cudaGraph_t graph = nullptr;
    return cudaStreamEndCapture(stream, &graph) == cudaSuccess ? Graph(graph) : Graph();
  }

  Ready ready_;
};

}  // namespace tiering::cuda
