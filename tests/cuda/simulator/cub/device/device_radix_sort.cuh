// Sorting with the interface of CUB, in the order of a stream.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <simulator.hpp>
#include <vector>

namespace cub {

/// Called twice: without temporary memory it only says how much it needs, with it it sorts. Keys, and what goes with
/// them, that agree in bits [begin_bit, end_bit) keep their order. Input and output must not overlap.
struct DeviceRadixSort {
  template <typename Key, typename Value, typename NumItemsT>
  static cudaError_t SortPairs(void* d_temp_storage, size_t& temp_storage_bytes, const Key* d_keys_in, Key* d_keys_out,
                               const Value* d_values_in, Value* d_values_out, NumItemsT num_items, int begin_bit = 0,
                               int end_bit = sizeof(Key) * 8, cudaStream_t stream = nullptr) {
    return sort(d_temp_storage, temp_storage_bytes, d_keys_in, num_items, begin_bit, end_bit, stream,
                [=](NumItemsT into, NumItemsT from) {
                  d_keys_out[into] = d_keys_in[from];
                  d_values_out[into] = d_values_in[from];
                });
  }
  template <typename Key, typename NumItemsT>
  static cudaError_t SortKeys(void* d_temp_storage, size_t& temp_storage_bytes, const Key* d_keys_in, Key* d_keys_out,
                              NumItemsT num_items, int begin_bit = 0, int end_bit = sizeof(Key) * 8,
                              cudaStream_t stream = nullptr) {
    return sort(d_temp_storage, temp_storage_bytes, d_keys_in, num_items, begin_bit, end_bit, stream,
                [=](NumItemsT into, NumItemsT from) { d_keys_out[into] = d_keys_in[from]; });
  }

 private:
  static constexpr size_t kTemporaryBytes = 1021;  // not round, so that a caller who rounds or guesses is found out

  /// `move` writes the item that belongs to a place.
  template <typename Key, typename NumItemsT, typename Move>
  static cudaError_t sort(void* temporary, size_t& temporary_bytes, const Key* keys, NumItemsT num_items, int begin_bit,
                          int end_bit, cudaStream_t stream, Move move) {
    constexpr int kKeyBits = sizeof(Key) * 8;
    int device = 0;
    if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
    if (temporary == nullptr) {
      temporary_bytes = kTemporaryBytes;
      return cudaSuccess;
    }
    if (temporary_bytes < kTemporaryBytes) return cudaErrorInvalidValue;
    if (begin_bit < 0 || end_bit < begin_bit || end_bit > kKeyBits) return cudaErrorInvalidValue;
    return simulator::enqueue(stream, [=] {
      // The temporary memory is written over, as the real one does: nothing else may lie there.
      std::memset(temporary, 0xcd, kTemporaryBytes);
      const int width = end_bit - begin_bit;
      const auto digits = [=](NumItemsT i) {
        const Key key = keys[i] >> begin_bit;
        return width == kKeyBits ? key : static_cast<Key>(key & ((Key{1} << width) - 1));
      };
      std::vector<NumItemsT> order(static_cast<size_t>(num_items));
      std::iota(order.begin(), order.end(), NumItemsT{0});
      std::stable_sort(order.begin(), order.end(), [&](NumItemsT a, NumItemsT b) { return digits(a) < digits(b); });
      for (NumItemsT i = 0; i < num_items; ++i) move(i, order[static_cast<size_t>(i)]);
    });
  }
};

}  // namespace cub
