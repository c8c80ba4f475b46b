// The combined gather: rows of all tiers in request order by one kernel, whatever memory they lie in.
#pragma once

#include <cuda_runtime_api.h>

#include <tiering/device/row_table.hpp>

namespace tiering::cuda {

/// Where a gather reads and writes; all addresses are readable by the device.
struct GatherRequest {
  const int64_t* ids = nullptr;  ///< ranks, `count` of them; null: 0, 1, 2, ...
  /// Per id, where a row of the ssd tier was put, or kNoSlot: what stands in its place in the result stays. Null:
  /// `staged` of the table has all of them in the order of ranks, or it is null and these rows are left as they are.
  const uint32_t* slots = nullptr;
  const uint32_t* places = nullptr;  ///< per id, the row of `out` it goes to; null: its own place in the request
  int64_t count = 0;
  std::byte* out = nullptr;  ///< rows, one behind the other
  /// If not null: numbers, one per tier, that are added to `totals`.
  const unsigned long long* tally = nullptr;
  unsigned long long* totals = nullptr;
};

/// Launch options of a gather: its part of the device, and its hint to the caches.
struct GatherLaunch {
  int max_sms = 0;          ///< bounds the multiprocessors' worth of threads (kThreadsPerSm each); 0: all
  int block_threads = 256;  ///< a multiple of 32 up to 1024; small blocks fit between those of other kernels
  bool streaming = true;    ///< rows are read once: caches keep other lines before them

  static constexpr int kThreadsPerSm = 1024;
};

/// Puts the gather on a stream and returns: no allocation, no synchronization, so it can be captured in a graph. Rows
/// of ids outside the table are left as they are. A few multiprocessors saturate PCIe: a lane has four accesses in
/// flight. Throws InputError for rows or blocks that are too large, CudaError if the launch is refused.
void gather_rows(const RowTable& table, const GatherRequest& request, const GatherLaunch& launch, cudaStream_t stream);

}  // namespace tiering::cuda
