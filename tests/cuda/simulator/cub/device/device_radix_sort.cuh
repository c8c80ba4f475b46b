// Sorting with the interface of CUB.
#pragma once

#include <algorithm>
#include <numeric>
#include <simulator.hpp>
#include <vector>

namespace cub {

/// Keys, and the values that go with them, that agree in bits [begin_bit, end_bit) keep their order. Input and output
/// must not overlap.
struct DeviceRadixSort {
  template <typename Key, typename Value, typename Count>
  static cudaError_t SortPairs(void* temporary, size_t& temporary_bytes, const Key* keys_in, Key* keys_out,
                               const Value* values_in, Value* values_out, Count count, int begin_bit, int end_bit,
                               cudaStream_t stream) {
    return simulator::call_cub(temporary, temporary_bytes, stream, [=] {
      const int above = static_cast<int>(sizeof(Key)) * 8 - end_bit;
      const auto digits = [=](Count i) { return static_cast<Key>(keys_in[i] << above) >> (above + begin_bit); };
      std::vector<Count> order(static_cast<size_t>(count));
      std::iota(order.begin(), order.end(), Count{0});
      std::stable_sort(order.begin(), order.end(), [&](Count a, Count b) { return digits(a) < digits(b); });
      for (Count i = 0; i < count; ++i) {
        keys_out[i] = keys_in[order[static_cast<size_t>(i)]];
        values_out[i] = values_in[order[static_cast<size_t>(i)]];
      }
    });
  }
};

}  // namespace cub
