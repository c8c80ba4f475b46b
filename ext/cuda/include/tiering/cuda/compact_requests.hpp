// Which rows of a batch no memory holds: what the host has to read from SSD before they can be copied.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <tiering/cuda/memory.hpp>
#include <tiering/io/tiers.hpp>

namespace tiering::cuda {

struct CompactRequest {
  const int64_t* ids = nullptr;  ///< ranks, `count` of them; those outside the table are passed over
  int64_t count = 0;
  int64_t first = 0;  ///< ranks from here on are listed
  TierRanges ranges;  ///< what rows are counted by
  /// Room for `count` each, in memory that host and device read: those ranks less `first`, in the order of the ids,
  /// and their places among the ids. Null where `first` is the end of the table.
  int64_t* compacted = nullptr;
  int64_t* places = nullptr;
  uint32_t* num_compacted = nullptr;  ///< how many they are; in pinned memory
};

/// Counts the rows of each tier and lists those to be read, in order. Grows with the largest request. Not thread-safe:
/// requests on different streams must be ordered.
class RequestCompactor {
 public:
  /// Puts the work on a stream and returns; the results are there when the stream has come so far.
  void compact(const CompactRequest& request, cudaStream_t stream);
  /// Rows of each tier among the ids of all requests, which must have been done. The sums are kept by the device, so
  /// that nobody waits for them until somebody asks.
  std::array<int64_t, kNumTiers> totals() const;

 private:
  Scratch<uint32_t> marks_;
  Scratch<unsigned long long> totals_;
  Scratch<std::byte> sums_;
};

}  // namespace tiering::cuda
