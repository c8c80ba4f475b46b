// The combined gather: rows of all tiers in request order by one kernel, whatever memory they lie in.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <tiering/device/row_table.hpp>

namespace tiering::cuda {

/// Where a gather reads and writes; all addresses are readable by the device.
struct GatherRequest {
  const int64_t* ids = nullptr;  ///< ranks, `count` of them; null: 0, 1, 2, ...
  /// Per id, where a row of the ssd tier was put, or kNoSlot: what stands in its place in the result stays. Null:
  /// `staged` of the table has all of them in the order of ranks, or it is null and these rows are left as they are.
  const uint32_t* slots = nullptr;
  const int64_t* places = nullptr;  ///< per id, the row of `out` it goes to; null: its own place in the request
  int64_t count = 0;
  std::byte* out = nullptr;  ///< rows, one behind the other
  /// If not null: the place of the first id outside the table is written here where it is less than what stands there.
  unsigned long long* first_bad = nullptr;
};

/// Puts the gather on a stream and returns: no allocation, no synchronisation, so it can be captured in a graph. Rows of
/// ids outside the table are left as they are.
///
/// `max_sms` bounds the multiprocessors used, 0: all. A few saturate PCIe: a lane has four accesses in flight, a block
/// 64 KiB. Throws CudaError if the launch is refused.
void gather_rows(const RowTable& table, const GatherRequest& request, int max_sms, cudaStream_t stream);

}  // namespace tiering::cuda
