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

constexpr int kMostThreads = 1024;    // of a block; so that a multiprocessor's registers are enough for as many
constexpr int kInFlight = 4;          // accesses of a lane
constexpr int kMostBlocks = 1 << 16;  // above multiprocessors: accesses of all lanes are counted in 32 bits

}  // namespace

/// A word of a row as it is.
template <typename T>
struct Word {
  static constexpr int kBytes = sizeof(T);
  T value = {};

  TIERING_DEVICE static int64_t out_bytes(const RowTable&) { return kBytes; }
  TIERING_DEVICE void load(const RowTable&, const std::byte* from, int32_t, bool streaming) {
    const auto* const word = reinterpret_cast<const T*>(from);
    value = streaming ? __ldcs(word) : *word;
  }
  TIERING_DEVICE void store(const RowTable&, std::byte* to, int32_t) const { *reinterpret_cast<T*>(to) = value; }
};

/// Four numbers of a row, or what is left of it, as a codec stores them, in words of 4 bytes.
template <typename Codec>
struct Numbers {
  static constexpr int kCount = 4, kCodeBytes = sizeof(typename Codec::Code), kBytes = kCount * kCodeBytes;
  unsigned words[kCodeBytes] = {};

  TIERING_DEVICE static int64_t out_bytes(const RowTable& table) {
    return table.codec.delivered == Encoding::float32 ? kCount * 4 : kCount * 2;
  }
  TIERING_DEVICE void load(const RowTable& table, const std::byte* from, int32_t item, bool streaming) {
    const auto* const word = reinterpret_cast<const unsigned*>(from);
    const auto* const half = reinterpret_cast<const unsigned short*>(from);
    TIERING_UNROLL
    for (int k = 0; k < kCodeBytes; ++k) {
      const int64_t left = table.row_bytes - (int64_t{item} * kCodeBytes + k) * 4;
      if (left > 0 && kCodeBytes == 2 && table.row_bytes % 4 != 0)  // without padding, it begins at any number
        words[k] = half[2 * k] | (left > 2 ? unsigned{half[2 * k + 1]} << 16 : 0U);
      else if (left > 0)
        words[k] = streaming ? __ldcs(word + k) : word[k];
    }
  }
  TIERING_DEVICE void store(const RowTable& table, std::byte* to, int32_t item) const {
    const RowCodec& codec = table.codec;
    const int64_t begin = int64_t{item} * kCount;
    unsigned numbers[kCount] = {};
    TIERING_UNROLL
    for (int k = 0; k < kCount; ++k) {
      if (begin + k >= codec.dim) continue;
      const float scale = Codec::kScaled ? codec.scale[begin + k] : 1.0F;
      const int32_t offset = Codec::kScaled ? codec.offset[begin + k] : 0;
      const unsigned word = words[k * kCodeBytes / 4] >> (k * kCodeBytes % 4 * 8);
      const float x = Codec::decode(static_cast<typename Codec::Code>(word), scale, offset);
      numbers[k] = codec.delivered == Encoding::float32   ? codec::bits_of(x)
                   : codec.delivered == Encoding::float16 ? unsigned{codec::Float16::encode(x, 1, 0)}
                                                          : unsigned{codec::BFloat16::encode(x, 1, 0)};
    }
    const bool wide = codec.delivered == Encoding::float32;
    const bool whole = codec.dim % kCount == 0 && reinterpret_cast<uintptr_t>(to) % out_bytes(table) == 0;
    if (whole && wide) {
      *reinterpret_cast<uint4*>(to) = uint4{numbers[0], numbers[1], numbers[2], numbers[3]};
    } else if (whole) {
      *reinterpret_cast<uint2*>(to) = uint2{numbers[0] | numbers[1] << 16, numbers[2] | numbers[3] << 16};
    } else {
      TIERING_UNROLL
      for (int k = 0; k < kCount; ++k) {
        if (begin + k >= codec.dim) continue;
        if (wide)
          reinterpret_cast<unsigned*>(to)[k] = numbers[k];
        else
          reinterpret_cast<unsigned short*>(to)[k] = static_cast<unsigned short>(numbers[k]);
      }
    }
  }
};

/// `request` is the part from its `first`-th id on, of at most kMostRows.
template <typename Item>
__global__ void __launch_bounds__(kMostThreads)
    gather(const RowTable table, const RowCopy copy, const GatherRequest request, const int64_t first,
           const int64_t out_bytes, const bool streaming) {
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
    int32_t number[kInFlight];
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
      number[i] = word;
      from[i] = row + int64_t{word} * Item::kBytes;
      to[i] = request.out + place * out_bytes + word * Item::out_bytes(table);
    }
    Item words[kInFlight];
    TIERING_UNROLL
    for (int i = 0; i < kInFlight; ++i)
      if (from[i] != nullptr) words[i].load(table, from[i], number[i], streaming);
    TIERING_UNROLL
    for (int i = 0; i < kInFlight; ++i)
      if (from[i] != nullptr) words[i].store(table, to[i], number[i]);
  }
}

namespace {

template <typename T>
T* moved(T* pointer, int64_t by) {
  return pointer == nullptr ? nullptr : pointer + by;
}

/// The ids [first, first + count) of a request.
GatherRequest part(const GatherRequest& request, int64_t first, int64_t count, int64_t out_bytes) {
  GatherRequest found = request;
  found.ids = moved(request.ids, first);
  found.slots = moved(request.slots, first);
  found.places = moved(request.places, first);
  if (request.places == nullptr) found.out += first * out_bytes;
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
  const int64_t out_bytes = table.out_bytes();
  const bool decoded =
      table.codec.dim > 0 && (table.codec.stored != table.codec.delivered || out_bytes != table.row_bytes);
  TIERING_EXPECT(!decoded || (table.alignment_bits() % (table.row_bytes % 4 == 0 ? 4 : 2) == 0 &&
                              out % static_cast<uint64_t>(code_bytes(table.codec.delivered)) == 0),
                 "rows of a codec begin at whole words, or numbers, and those of the result at whole numbers");
  const RowCopy copy = decoded ? RowCopy::of_items((table.codec.dim + 3) / 4)
                               : RowCopy::plan(table.row_bytes, table.alignment_bits() | out);
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
             part(request, first, count, out_bytes), first, out_bytes, how.streaming);
    }
  };
  if (decoded) return codec::visit(table.codec.stored, [&](auto kind) { run(gather<Numbers<decltype(kind)>>); });
  if (copy.width == 16) return run(gather<Word<uint4>>);
  if (copy.width == 8) return run(gather<Word<uint2>>);
  if (copy.width == 4) return run(gather<Word<unsigned>>);
  if (copy.width == 2) return run(gather<Word<unsigned short>>);
  run(gather<Word<unsigned char>>);
}

}  // namespace tiering::cuda
