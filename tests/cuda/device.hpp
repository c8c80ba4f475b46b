// What tests of the CUDA part begin with.
#pragma once

#include <cuda_runtime_api.h>

#include <iostream>

namespace tiering::test {

constexpr int kSkipped = 77;  ///< exit code

/// Whether a device is missing; then says that the test is skipped.
inline bool no_device(const char* test) {
  int devices = 0;
  const cudaError_t code = cudaGetDeviceCount(&devices);
  if (code == cudaSuccess && devices > 0) return false;
  std::cout << test << ": skipped, no device: " << cudaGetErrorString(code) << "\n";
  return true;
}

}  // namespace tiering::test
