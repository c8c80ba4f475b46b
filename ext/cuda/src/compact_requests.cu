#include <algorithm>
#include <tiering/cuda/compact_requests.hpp>
#include <tiering/cuda/launch.hpp>

#include "prefix_sums.hpp"

namespace tiering::cuda {
namespace {

__global__ void mark_rows(CompactRequest request, uint32_t* marks) {
  for (int64_t i = first_item(); i <= request.count; i += item_stride()) {
    const int64_t id = i < request.count ? request.ids[i] : -1;
    marks[i] = id >= request.first && id < request.ranges.num_rows ? 1 : 0;
  }
}

__global__ void list_rows(CompactRequest request, const uint32_t* sums) {
  for (int64_t i = first_item(); i < request.count; i += item_stride()) {
    if (sums[i + 1] == sums[i]) continue;
    request.compacted[sums[i]] = request.ids[i] - request.first;
    request.places[sums[i]] = i;
  }
}

/// Per thread a tally of its own, then one addition: the four numbers are asked for by all.
__global__ void count_tiers(CompactRequest request, unsigned long long* totals) {
  unsigned long long rows[kNumTiers] = {};
  for (int64_t i = first_item(); i < request.count; i += item_stride()) {
    const int64_t id = request.ids[i];
    if (id >= 0 && id < request.ranges.num_rows) ++rows[static_cast<int>(request.ranges.tier_of(id))];
  }
  for (int tier = 0; tier < kNumTiers; ++tier)
    if (rows[tier] > 0) atomicAdd(totals + tier, rows[tier]);
}

}  // namespace

void RequestCompactor::compact(const CompactRequest& request, cudaStream_t stream) {
  constexpr int kThreads = 256, kMostBlocks = 16;
  if (totals_.capacity() == 0)
    check(cudaMemsetAsync(totals_.require(kNumTiers), 0, kNumTiers * sizeof(*totals_.data()), stream),
          "clearing a tally");
  const int64_t blocks = std::min<int64_t>((request.count + kThreads - 1) / kThreads, kMostBlocks);
  if (blocks > 0) launch("counting rows of tiers", count_tiers, blocks, kThreads, stream, request, totals_.data());
  if (request.compacted == nullptr) return;
  uint32_t* const marks = marks_.require(request.count + 1);
  launch_over("marking rows", mark_rows, request.count + 1, stream, request, marks);
  prefix_sums(marks, request.count + 1, sums_, stream);
  launch_over("listing rows", list_rows, request.count, stream, request, static_cast<const uint32_t*>(marks));
  check(cudaMemcpyAsync(request.num_compacted, marks + request.count, sizeof *marks, cudaMemcpyDefault, stream),
        "reading how many rows");
}

std::array<int64_t, kNumTiers> RequestCompactor::totals() const {
  std::array<int64_t, kNumTiers> found{};
  if (totals_.capacity() > 0)
    check(cudaMemcpy(found.data(), totals_.data(), sizeof found, cudaMemcpyDefault), "reading a tally");
  return found;
}

}  // namespace tiering::cuda
