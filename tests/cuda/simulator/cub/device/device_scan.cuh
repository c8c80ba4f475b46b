// Prefix sums with the interface of CUB, in the order of a stream.
#pragma once

#include <cuda_runtime_api.h>

#include <cstring>
#include <iterator>
#include <simulator.hpp>
#include <type_traits>

namespace cub {

/// Called twice: without temporary memory it only says how much it needs, with it it sums. Sums are as wide as those of
/// two inputs, as with CUB: whoever gives 32 bits gets sums of 32 bits. The result may lie where the input lies.
struct DeviceScan {
  template <typename InputIteratorT, typename OutputIteratorT, typename NumItemsT>
  static cudaError_t ExclusiveSum(void* d_temp_storage, size_t& temp_storage_bytes, InputIteratorT d_in,
                                  OutputIteratorT d_out, NumItemsT num_items, cudaStream_t stream = nullptr) {
    return scan<false>(d_temp_storage, temp_storage_bytes, d_in, d_out, num_items, stream);
  }
  template <typename IteratorT, typename NumItemsT>
  static cudaError_t ExclusiveSum(void* d_temp_storage, size_t& temp_storage_bytes, IteratorT d_data,
                                  NumItemsT num_items, cudaStream_t stream = nullptr) {
    return scan<false>(d_temp_storage, temp_storage_bytes, d_data, d_data, num_items, stream);
  }
  template <typename InputIteratorT, typename OutputIteratorT, typename NumItemsT>
  static cudaError_t InclusiveSum(void* d_temp_storage, size_t& temp_storage_bytes, InputIteratorT d_in,
                                  OutputIteratorT d_out, NumItemsT num_items, cudaStream_t stream = nullptr) {
    return scan<true>(d_temp_storage, temp_storage_bytes, d_in, d_out, num_items, stream);
  }
  template <typename IteratorT, typename NumItemsT>
  static cudaError_t InclusiveSum(void* d_temp_storage, size_t& temp_storage_bytes, IteratorT d_data,
                                  NumItemsT num_items, cudaStream_t stream = nullptr) {
    return scan<true>(d_temp_storage, temp_storage_bytes, d_data, d_data, num_items, stream);
  }

 private:
  static constexpr size_t kTemporaryBytes = 767;  // not round, so that a caller who rounds or guesses is found out

  template <bool inclusive, typename In, typename Out, typename Count>
  static cudaError_t scan(void* temporary, size_t& temporary_bytes, In in, Out out, Count count, cudaStream_t stream) {
    int device = 0;
    if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
    if (temporary == nullptr) {
      temporary_bytes = kTemporaryBytes;
      return cudaSuccess;
    }
    if (temporary_bytes < kTemporaryBytes) return cudaErrorInvalidValue;
    return simulator::enqueue(stream, [=] {
      // The temporary memory is written over, as the real one does: nothing else may lie there.
      std::memset(temporary, 0xcd, kTemporaryBytes);
      using Value = typename std::iterator_traits<In>::value_type;
      std::decay_t<decltype(Value{} + Value{})> sum{};
      for (Count i = 0; i < count; ++i) {
        const Value value = in[i];
        if constexpr (!inclusive) out[i] = sum;
        sum = sum + value;
        if constexpr (inclusive) out[i] = sum;
      }
    });
  }
};

}  // namespace cub
