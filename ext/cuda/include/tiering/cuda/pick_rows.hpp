// Which rows of a batch no memory holds: what the host has to read from SSD before they can be copied.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <tiering/cuda/memory.hpp>
#include <tiering/io/tiers.hpp>

namespace tiering::cuda {

struct PickRequest {
  const int64_t* ids = nullptr;  ///< ranks, `count` of them; those outside the table are passed over
  int64_t count = 0;
  int64_t first = 0;  ///< ranks from here on are picked
  TierRanges ranges;  ///< what the tally counts by
  /// Room for `count` each, in memory that host and device read: the picked ranks less `first`, in the order of the ids,
  /// and their places among the ids. Null where `first` is the end of the table.
  int64_t* picked = nullptr;
  int64_t* places = nullptr;
  /// Rows of the gpu, peer, cpu and ssd tier among the ids; kNumTiers numbers in pinned memory.
  int64_t* tally = nullptr;
};

/// Counts the rows of each tier and lists those to be read, in order. Grows with the largest request. Not thread-safe:
/// one stream.
class RowPicker {
 public:
  /// Puts the work on a stream and returns; the results are there when the stream has come so far.
  void pick(const PickRequest& request, cudaStream_t stream);

 private:
  Scratch<uint32_t> marks_;
  Scratch<unsigned long long> tally_;
  Scratch<std::byte> sums_;
};

}  // namespace tiering::cuda
