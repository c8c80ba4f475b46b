#include <bit>
#include <limits>
#include <tiering/cuda/launch.hpp>
#include <tiering/cuda/row_requests.hpp>
#include <tiering/device/row_copy.hpp>
#include <tiering/errors.hpp>

#include "cub_calls.hpp"

namespace tiering::cuda {
namespace {

constexpr uint64_t kNoRow = ~uint64_t{0};  // in any number of lowest bits the last key
constexpr int kThreads = 256;

/// One sum for the threads of a warp, all of which come here: the tally is asked for by all of them.
TIERING_DEVICE void add_to(unsigned long long* tally, unsigned rows) {
#ifdef __CUDA_ARCH__
  for (int distance = kWarpLanes / 2; distance > 0; distance /= 2) rows += __shfl_down_sync(~0U, rows, distance);
  if (threadIdx.x % kWarpLanes != 0) return;
#endif
  if (rows > 0) atomicAdd(tally, static_cast<unsigned long long>(rows));
}

}  // namespace

/// A row's key: its rank, but in the ssd tier its slot behind the other tiers. `pairs.keys` null: rows are only
/// counted.
__global__ void __launch_bounds__(kThreads)
    translate(RowTable table, RowRequest request, KeyPairs pairs, unsigned long long* tally) {
  unsigned rows[kNumTiers] = {};  // a request has fewer than 2^32
  for (int64_t i = first_item(); i < request.count; i += item_stride()) {
    const int64_t id = request.ids[i];
    uint64_t key = kNoRow;
    if (table.contains(id)) {
      const auto of = static_cast<int>(table.ranges.tier_of(id));
      TIERING_UNROLL
      for (int tier = 0; tier < kNumTiers; ++tier) rows[tier] += tier == of;  // by a constant index: in registers
      key = static_cast<uint64_t>(id);
      if (request.slots != nullptr && id >= table.ranges.cpu_end)
        key = request.slots[i] == kNoSlot ? kNoRow
                                          : static_cast<uint64_t>(table.ranges.cpu_end) + uint64_t{request.slots[i]};
    } else if (request.first_bad != nullptr) {
      atomicMin(request.first_bad, static_cast<unsigned long long>(i));
    }
    if (pairs.keys == nullptr) continue;
    pairs.keys[i] = key;
    pairs.values[i] = static_cast<uint32_t>(i);
  }
  TIERING_UNROLL
  for (int tier = 0; tier < kNumTiers; ++tier) add_to(tally + tier, rows[tier]);
}

/// Rows of the ssd tier stand behind those of the others among the sorted keys.
__global__ void list_rows(RowRequest request, KeyPairs sorted, const unsigned long long* tally, int64_t first_rank) {
  int64_t begin = 0;
  for (int tier = 0; tier + 1 < kNumTiers; ++tier) begin += static_cast<int64_t>(tally[tier]);
  const auto count = static_cast<int64_t>(tally[kNumTiers - 1]);
  for (int64_t i = first_item(); i < count; i += item_stride()) {
    request.listed[i] = static_cast<int64_t>(sorted.keys[begin + i]) - first_rank;
    request.listed_places[i] = sorted.values[begin + i];
  }
  if (first_item() == 0) *request.num_listed = static_cast<uint32_t>(count);
}

void RequestGatherer::prepare(const RowTable& table, const RowRequest& request, bool by_address, cudaStream_t stream) {
  TIERING_EXPECT(request.count < int64_t{1} << 32, "rows: expected fewer than 2^32 ids at a time, found ",
                 request.count);
  KeyPairs pairs{}, sorted{};
  if (by_address) {
    pairs = {keys_.require_roomy(request.count), places_.require_roomy(request.count)};
    sorted = {sorted_keys_.require_roomy(request.count), sorted_places_.require_roomy(request.count)};
  }
  Tally* const tally = tallies_.require(2 * kNumTiers);
  check(cudaMemsetAsync(tally, 0, (counts_ ? 1 : 2) * kNumTiers * sizeof(Tally), stream), "clearing a tally");
  counts_ = true;
  const int64_t blocks =
      std::min((request.count + kThreads - 1) / kThreads, int64_t{2} * multiprocessors());  // each adds to the tally
  if (blocks > 0) {
    launch("translating a request", translate, blocks, kThreads, stream, table, request, pairs, tally);
    const TierRanges& ranges = table.ranges;
    const int64_t most = request.slots != nullptr ? ranges.cpu_end + int64_t{kNoSlot} : ranges.num_rows;
    // Bits of the largest key that has a row, and of kNoRow, which must come behind it.
    const int bits = std::bit_width(static_cast<uint64_t>(most) + 1);
    if (by_address) sort_pairs(pairs, sorted, request.count, bits, memory_, stream);
  }
  if (request.listed != nullptr)
    launch_on(0, "listing rows", list_rows, std::max<int64_t>(request.count, 1), stream, request, sorted,
              static_cast<const Tally*>(tally), table.ranges.cpu_end);
  request_ = request;
  sorted_ = by_address;
}

void RequestGatherer::gather(const RowTable& table, std::byte* out, const GatherLaunch& launch, cudaStream_t stream) {
  GatherRequest request{.ids = request_.ids, .slots = request_.slots, .count = request_.count, .out = out};
  request.tally = tallies_.data();
  request.totals = tallies_.data() + kNumTiers;
  if (!sorted_) return gather_rows(table, request, launch, stream);
  request.ids = reinterpret_cast<const int64_t*>(sorted_keys_.data());  // kNoRow is no rank: below 0
  request.slots = nullptr;
  request.places = sorted_places_.data();
  RowTable sound = table;  // slots may be more than the tier has rows
  sound.ranges.num_rows = std::numeric_limits<int64_t>::max();
  gather_rows(sound, request, launch, stream);
}

std::array<int64_t, kNumTiers> RequestGatherer::totals() const {
  std::array<int64_t, kNumTiers> found{};
  if (counts_)
    check(cudaMemcpy(found.data(), tallies_.data() + kNumTiers, sizeof found, cudaMemcpyDefault), "reading a tally");
  return found;
}

}  // namespace tiering::cuda
