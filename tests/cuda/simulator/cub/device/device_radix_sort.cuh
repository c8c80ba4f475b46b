// Sorting of pairs with the interface of CUB, in the order of a stream.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <simulator.hpp>
#include <vector>

namespace cub {

/// Called twice: without temporary memory it only says how much it needs, with it it sorts. Pairs whose keys agree in
/// bits [begin_bit, end_bit) keep their order. Input and output must not overlap.
struct DeviceRadixSort {
  template <typename Key, typename Value, typename NumItemsT>
  static cudaError_t SortPairs(void* d_temp_storage, size_t& temp_storage_bytes, const Key* d_keys_in, Key* d_keys_out,
                               const Value* d_values_in, Value* d_values_out, NumItemsT num_items, int begin_bit = 0,
                               int end_bit = sizeof(Key) * 8, cudaStream_t stream = nullptr) {
    constexpr size_t kTemporaryBytes = 1021;  // not round, so that a caller who rounds or guesses is found out
    int device = 0;
    if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
    if (d_temp_storage == nullptr) {
      temp_storage_bytes = kTemporaryBytes;
      return cudaSuccess;
    }
    if (temp_storage_bytes < kTemporaryBytes) return cudaErrorInvalidValue;
    if (begin_bit < 0 || end_bit < begin_bit || end_bit > static_cast<int>(sizeof(Key) * 8))
      return cudaErrorInvalidValue;
    return simulator::enqueue(stream, [=] {
      // The temporary memory is written over, as the real one does: nothing else may lie there.
      std::memset(d_temp_storage, 0xcd, kTemporaryBytes);
      const int width = end_bit - begin_bit;
      const auto digits = [=](NumItemsT i) {
        const Key key = d_keys_in[i] >> begin_bit;
        return width == static_cast<int>(sizeof(Key) * 8) ? key : static_cast<Key>(key & ((Key{1} << width) - 1));
      };
      std::vector<NumItemsT> order(static_cast<size_t>(num_items));
      std::iota(order.begin(), order.end(), NumItemsT{0});
      std::stable_sort(order.begin(), order.end(), [&](NumItemsT a, NumItemsT b) { return digits(a) < digits(b); });
      for (NumItemsT i = 0; i < num_items; ++i) {
        d_keys_out[i] = d_keys_in[order[static_cast<size_t>(i)]];
        d_values_out[i] = d_values_in[order[static_cast<size_t>(i)]];
      }
    });
  }
};

}  // namespace cub
