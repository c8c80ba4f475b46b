// Errors of the CUDA runtime as exceptions.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <stdexcept>
#include <string>

namespace tiering::cuda {

/// A call of the CUDA runtime failed.
class CudaError : public std::runtime_error {
 public:
  CudaError(cudaError_t code, const std::string& what)
      : std::runtime_error(what + ": " + cudaGetErrorString(code) + " (" + cudaGetErrorName(code) + ")") {}
};

/// Memory of a device, or memory that a device may lock, does not suffice. Nothing was taken.
class OutOfMemory : public CudaError {
 public:
  OutOfMemory(cudaError_t code, const std::string& what, int64_t wanted, int64_t free)
      : CudaError(code, what), wanted_(wanted), free_(free) {}
  int64_t wanted() const noexcept { return wanted_; }
  int64_t free() const noexcept { return free_; }  ///< bytes that were left; -1 where nobody knows

 private:
  int64_t wanted_, free_;
};

/// Returns `code` and clears the runtime's record of it: the next launch would be blamed for the error.
inline cudaError_t forget(cudaError_t code) noexcept {
  if (code != cudaSuccess) (void)cudaGetLastError();
  return code;
}

/// Throws if a call failed: what was tried, and the runtime's words.
inline void check(cudaError_t code, const char* what) {
  if (forget(code) != cudaSuccess) throw CudaError(code, what);
}

}  // namespace tiering::cuda
