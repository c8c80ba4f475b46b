// The combined gather: a grid of as many blocks as multiprocessors may be used walks over (row, step) pairs, a step
// being what the lanes that share a row read at once (row_copy.hpp). A lane first asks for the ids of several pairs,
// then for their words, then stores them, because a read over PCIe takes a microsecond or two. Every word of the result
// has one writer.
#include <tiering/cuda/gather_rows.hpp>
#include <tiering/cuda/launch.hpp>
#include <tiering/device/row_copy.hpp>
#include <tiering/errors.hpp>

namespace tiering::cuda {
namespace {

constexpr int kMostThreads = 1024;  // of a block; so that a multiprocessor's registers are enough for as many
constexpr int kInFlight = 4;        // accesses of a lane
constexpr int kMostBlocks =
    1 << 16;  // more than there are multiprocessors: accesses of all lanes are counted in 32 bits

}  // namespace

/// `request` is the part from its `first`-th id on, of at most kMostRows.
template <typename Word>
__global__ void __launch_bounds__(kMostThreads)
    gather(const RowTable table, const RowCopy copy, const GatherRequest request, const int64_t first,
           const bool streaming) {
  if (request.tally != nullptr && first_item() < kNumTiers)
    atomicAdd(request.totals + first_item(), request.tally[first_item()]);
  const auto count = static_cast<int32_t>(request.count);
  const auto thread = static_cast<int32_t>(first_item()), threads = static_cast<int32_t>(item_stride());
  const int lane = thread % copy.lanes;
  const int32_t group = thread / copy.lanes, of_warp = kWarpLanes / copy.lanes;
  RowStep here = copy.at(group / of_warp * of_warp * kInFlight + group % of_warp);
  const RowStep next = copy.at(of_warp), stride = copy.at(threads / copy.lanes * kInFlight);
  for (; here.row < count; here = copy.after(here, stride)) {
    RowStep items[kInFlight];
    int64_t ids[kInFlight];
    TIERING_UNROLL
    for (int i = 0; i < kInFlight; ++i) {
      items[i] = i == 0 ? here : copy.after(items[i - 1], next);
      ids[i] = first + items[i].row;
      if (request.ids != nullptr && items[i].row < count) ids[i] = request.ids[items[i].row];
    }
    const std::byte* from[kInFlight];
    std::byte* to[kInFlight];
    TIERING_UNROLL
    for (int i = 0; i < kInFlight; ++i) {
      from[i] = nullptr;
      const auto [at, step] = items[i];
      if (at >= count) continue;
      if (!table.contains(ids[i])) continue;
      int64_t slot = 0;
      if (ids[i] >= table.ranges.cpu_end) {
        if (table.staged == nullptr) continue;
        slot = request.slots == nullptr ? ids[i] - table.ranges.cpu_end : int64_t{request.slots[at]};
        if (request.slots != nullptr && slot == int64_t{kNoSlot}) continue;
      }
      const std::byte* const row = table.row(ids[i], slot);
      const int32_t word = copy.word(step, lane, copy.shift(reinterpret_cast<uintptr_t>(row)));
      if (word < 0) continue;
      const int64_t place = request.places == nullptr ? int64_t{at} : int64_t{request.places[at]};
      from[i] = row + word * sizeof(Word);
      to[i] = request.out + place * table.row_bytes + word * sizeof(Word);
    }
    Word words[kInFlight] = {};
    TIERING_UNROLL
    for (int i = 0; i < kInFlight; ++i)
      if (from[i] != nullptr) {
        const auto* const word = reinterpret_cast<const Word*>(from[i]);
        words[i] = streaming ? __ldcs(word) : *word;
      }
    TIERING_UNROLL
    for (int i = 0; i < kInFlight; ++i)
      if (from[i] != nullptr) *reinterpret_cast<Word*>(to[i]) = words[i];
  }
}

namespace {

template <typename T>
T* moved(T* pointer, int64_t by) {
  return pointer == nullptr ? nullptr : pointer + by;
}

/// The ids [first, first + count) of a request.
GatherRequest part(const GatherRequest& request, int64_t first, int64_t count, int64_t row_bytes) {
  GatherRequest found = request;
  found.ids = moved(request.ids, first);
  found.slots = moved(request.slots, first);
  found.places = moved(request.places, first);
  if (request.places == nullptr) found.out += first * row_bytes;
  found.count = count;
  if (first > 0) found.tally = nullptr;
  return found;
}

}  // namespace

void gather_rows(const RowTable& table, const GatherRequest& request, const GatherLaunch& how, cudaStream_t stream) {
  const int threads = how.block_threads;
  TIERING_EXPECT(threads >= kWarpLanes && threads <= kMostThreads && threads % kWarpLanes == 0,
                 "block_threads: expected a multiple of 32 up to 1024, found ", threads);
  TIERING_EXPECT(table.row_bytes <= INT32_MAX, "rows of ", table.row_bytes, " bytes: expected less than 2 GiB");
  const uint64_t out = reinterpret_cast<uintptr_t>(request.out);
  const RowCopy copy = RowCopy::plan(table.row_bytes, table.alignment_bits() | out);
  if (copy.words == 0) return;
  const int64_t sms = how.max_sms > 0 ? how.max_sms : multiprocessors();
  const int64_t most =
      std::min<int64_t>(std::max<int64_t>(1, sms * GatherLaunch::kThreadsPerSm / threads), kMostBlocks);
  auto run = [&](auto kernel) {
    for (int64_t first = 0; first < request.count; first += RowCopy::kMostRows) {
      const int64_t count = std::min(request.count - first, RowCopy::kMostRows);
      const int64_t accesses = count * copy.steps * copy.lanes, of_block = int64_t{threads} * kInFlight;
      const int64_t blocks = std::min((accesses + of_block - 1) / of_block, most);
      launch("launching the gather", kernel, blocks, threads, stream, table, copy,
             part(request, first, count, table.row_bytes), first, how.streaming);
    }
  };
  switch (copy.width) {
    case 16:
      return run(gather<uint4>);
    case 8:
      return run(gather<uint2>);
    case 4:
      return run(gather<unsigned>);
    case 2:
      return run(gather<unsigned short>);
    default:
      return run(gather<unsigned char>);
  }
}

}  // namespace tiering::cuda
