#include <tiering/cuda/launch.hpp>
#include <tiering/cuda/pick_rows.hpp>

#include "prefix_sums.cuh"

namespace tiering::cuda {
namespace {

__global__ void mark_rows(PickRequest request, uint32_t* marks) {
  for (int64_t i = first_item(); i <= request.count; i += item_stride()) {
    const int64_t id = i < request.count ? request.ids[i] : -1;
    marks[i] = id >= request.first && id < request.ranges.num_rows ? 1 : 0;
  }
}

__global__ void list_rows(PickRequest request, const uint32_t* sums) {
  for (int64_t i = first_item(); i < request.count; i += item_stride()) {
    if (sums[i + 1] == sums[i]) continue;
    request.picked[sums[i]] = request.ids[i] - request.first;
    request.places[sums[i]] = i;
  }
}

/// Per thread a tally of its own, then one addition: the four numbers are asked for by all.
__global__ void count_tiers(PickRequest request, unsigned long long* tally) {
  unsigned long long rows[kNumTiers] = {};
  for (int64_t i = first_item(); i < request.count; i += item_stride()) {
    const int64_t id = request.ids[i];
    if (id >= 0 && id < request.ranges.num_rows) ++rows[static_cast<int>(request.ranges.tier_of(id))];
  }
  for (int tier = 0; tier < kNumTiers; ++tier)
    if (rows[tier] > 0) atomicAdd(tally + tier, rows[tier]);
}

}  // namespace

void RowPicker::pick(const PickRequest& request, cudaStream_t stream) {
  constexpr int kThreads = 256, kMostBlocks = 16;
  const size_t bytes = kNumTiers * sizeof(int64_t);
  auto* const tally = tally_.require(kNumTiers);
  check(cudaMemsetAsync(tally, 0, bytes, stream), "clearing a tally");
  const int64_t blocks = std::min<int64_t>((request.count + kThreads - 1) / kThreads, kMostBlocks);
  if (blocks > 0) launch("counting rows of tiers", count_tiers, blocks, kThreads, stream, request, tally);
  // Copied: a GPU cannot add to host memory over PCIe.
  check(cudaMemcpyAsync(request.tally, tally, bytes, cudaMemcpyDefault, stream), "reading a tally");
  if (request.picked == nullptr || request.count == 0) return;
  uint32_t* const marks = marks_.require(request.count + 1);
  launch_over("marking rows", mark_rows, request.count + 1, stream, request, marks);
  prefix_sums(marks, request.count + 1, sums_, stream);
  launch_over("listing rows", list_rows, request.count, stream, request, static_cast<const uint32_t*>(marks));
}

}  // namespace tiering::cuda
