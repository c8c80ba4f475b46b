// The combined gather.
//
// Approach:   a grid of as many blocks as multiprocessors may be used walks over (row, step) pairs: a step is what the
//             lanes that share a row read at once (row_copy.hpp). A lane asks for the words of several pairs before it
//             stores any, because a read over PCIe takes a microsecond or two.
// Memory:     none.
// Determinism: every word of the result has one writer.
#include <algorithm>
#include <tiering/cuda/gather_rows.hpp>
#include <tiering/cuda/launch.hpp>
#include <tiering/device/row_copy.hpp>

namespace tiering::cuda {
namespace {

constexpr int kThreads = 1024;  // of a block: the registers of a multiprocessor are enough for one
constexpr int kInFlight = 4;    // accesses of a lane

template <typename Word>
__global__ void __launch_bounds__(kThreads)
    gather(const RowTable table, const RowCopy copy, const GatherRequest request) {
  const int64_t groups = item_stride() / copy.lanes, group = first_item() / copy.lanes;
  const int lane = static_cast<int>(first_item() % copy.lanes);
  const int64_t items = request.count * copy.steps;
  for (int64_t base = group; base < items; base += groups * kInFlight) {
    Word words[kInFlight];
    std::byte* places[kInFlight];
    TIERING_UNROLL
    for (int i = 0; i < kInFlight; ++i) {
      places[i] = nullptr;
      const int64_t item = base + i * groups;
      if (item >= items) continue;
      const int64_t at = copy.steps == 1 ? item : item / copy.steps, step = item - at * copy.steps;
      const int64_t id = request.ids == nullptr ? at : request.ids[at];
      if (!table.contains(id)) {
        if (request.first_bad != nullptr && lane == 0 && step == 0)
          atomicMin(request.first_bad, static_cast<unsigned long long>(at));
        continue;
      }
      int64_t slot = 0;
      if (id >= table.ranges.cpu_end) {
        if (request.slots == nullptr) continue;
        slot = request.slots[at];
      }
      const std::byte* const row = table.row(id, slot);
      const int64_t word = copy.word(step, lane, copy.shift(reinterpret_cast<uintptr_t>(row)));
      if (word < 0) continue;
      words[i] = __ldcs(reinterpret_cast<const Word*>(row) + word);
      const int64_t place = request.places == nullptr ? at : request.places[at];
      places[i] = request.out + place * table.row_bytes + word * static_cast<int64_t>(sizeof(Word));
    }
    TIERING_UNROLL
    for (int i = 0; i < kInFlight; ++i)
      if (places[i] != nullptr) *reinterpret_cast<Word*>(places[i]) = words[i];
  }
}

}  // namespace

void gather_rows(const RowTable& table, const GatherRequest& request, int most_sms, cudaStream_t stream) {
  const uint64_t out = reinterpret_cast<uintptr_t>(request.out);
  const RowCopy copy = RowCopy::plan(table.row_bytes, table.alignment_bits() | out);
  if (request.count == 0 || copy.words == 0) return;
  const int64_t threads = request.count * copy.steps * copy.lanes;
  const int64_t wanted = (threads + kThreads - 1) / kThreads;
  const int64_t most = most_sms > 0 ? most_sms : multiprocessors();
  const int64_t blocks = std::min(wanted, most);
  auto run = [&](auto kernel) {
    launch("launching the gather", kernel, blocks, kThreads, stream, table, copy, request);
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
