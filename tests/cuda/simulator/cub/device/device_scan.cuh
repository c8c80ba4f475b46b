// Prefix sums with the interface of CUB.
#pragma once

#include <simulator.hpp>
#include <utility>

namespace cub {

struct DeviceScan {
  /// The result may lie where the input lies.
  template <typename T, typename Count>
  static cudaError_t ExclusiveSum(void* temporary, size_t& temporary_bytes, const T* in, T* out, Count count,
                                  cudaStream_t stream) {
    return simulator::call_cub(temporary, temporary_bytes, stream, [=] {
      T sum{};
      for (Count i = 0; i < count; ++i) out[i] = std::exchange(sum, sum + in[i]);
    });
  }
};

}  // namespace cub
