// Errors of the CUDA runtime as exceptions.
#pragma once

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

namespace tiering::cuda {

/// Throws if a call failed: what was tried, and the runtime's words.
inline void check(cudaError_t code, const char* what) {
  if (code != cudaSuccess)
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(code) + " (" +
                             cudaGetErrorName(code) + ")");
}

}  // namespace tiering::cuda
