// Rows that lie anywhere in pages of SSD images, read by the kernel that wants them: no host in between.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <tiering/cuda/nvme_queues.hpp>

namespace tiering::cuda {

/// Where rows lie and where they go; all addresses are readable by the device.
struct PageRows {
  const uint64_t* pages = nullptr;    ///< per row: page p lies on image p % images, as page p / images there
  const uint32_t* offsets = nullptr;  ///< per row: its first byte in the page, which holds all of it
  int64_t count = 0;
  uint32_t row_bytes = 0;
  uint32_t page_bytes = 0;   ///< whole blocks, at most NvmeQueues::place_bytes
  std::byte* out = nullptr;  ///< rows, one behind the other
  /// Per row: 0, or PageResult::code() of what went wrong; the row is then left as it is.
  uint32_t* failures = nullptr;
};

/// Puts on a stream a kernel whose warps submit, wait and copy. Rows that lanes of a warp want from the same page cost one
/// command. Throws InputError for pages and rows that cannot be, CudaError if the launch is refused.
void read_rows_in_kernel(const NvmeQueues& queues, const PageRows& rows, cudaStream_t stream);

}  // namespace tiering::cuda
