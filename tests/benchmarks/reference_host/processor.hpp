// The reference kernels on the processor: blocks and warps one after the other, lanes of a warp as threads that meet in
// __syncwarp. Included before all else (-include).
#pragma once
#include <algorithm>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <thread>
#include <vector>

#define __global__
#define __device__
#define __shared__ static

struct Dim {
  unsigned x;
};
inline thread_local Dim threadIdx;
inline Dim blockIdx, gridDim;
using cudaStream_t = struct Stream*;
inline int cudaGetLastError() { return 0; }

constexpr unsigned kWarpLanes = 32;
inline std::barrier<>* lanes = nullptr;
inline void __syncwarp() { lanes->arrive_and_wait(); }

template <typename Work>
void launch(unsigned blocks, unsigned threads, const Work& work) {
  gridDim.x = blocks;
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x)
    for (unsigned first = 0; first < threads; first += kWarpLanes) {
      std::barrier meeting(kWarpLanes);
      lanes = &meeting;
      std::vector<std::jthread> warp;
      for (unsigned lane = 0; lane < kWarpLanes; ++lane)
        warp.emplace_back([&, thread = first + lane] {
          threadIdx.x = thread;
          work();
        });
    }
}
#define REFERENCE_LAUNCH(kernel, blocks, threads, stream, ...) \
  ((void)(stream), launch(blocks, threads, [&] { kernel(__VA_ARGS__); }))

namespace cub {
struct DeviceSegmentedSort {
  template <typename Key, typename Value>
  static int SortPairs(void* workspace, size_t& bytes, const Key* keys, Key* keys_out, const Value* values,
                       Value* values_out, int64_t, int64_t segments, const int64_t* begins, const int64_t* ends,
                       cudaStream_t) {
    bytes = 1;
    if (workspace == nullptr) return 0;
    for (int64_t k = 0; k < segments; ++k) {
      std::vector<int64_t> order(ends[k] - begins[k]);
      std::iota(order.begin(), order.end(), begins[k]);
      std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return keys[a] < keys[b]; });
      for (size_t i = 0; i < order.size(); ++i) {
        keys_out[begins[k] + i] = keys[order[i]];
        values_out[begins[k] + i] = values[order[i]];
      }
    }
    return 0;
  }
};
}  // namespace cub
