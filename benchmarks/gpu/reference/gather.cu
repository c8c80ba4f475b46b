// Gathers as others have published them, written to be compared with; no part of the package.
//
// rows_by_warps:  what DGL and GraphBolt do for rows that a GPU reads from host memory (after Min et al., VLDB'21): lanes
//                 of a warp read a row side by side, and begin with the line of 128 bytes in which it begins.
// rows_staged:    what WholeGraph (cuGraph's) does: the same reads go to shared memory first, and the row is written
//                 from there by the lines of where it goes. So are several reads of a lane in flight.
// Both use as many blocks as there are rows for, words as wide as all rows allow, and ids in the order given.
#include <algorithm>
#include <cstdint>

#include "launch.hpp"

namespace {

constexpr int kLanes = 32, kWarps = 8, kLine = 128;
constexpr int kReads = 4;  // of a lane, before the first of them is written
constexpr int64_t kMostBlocks = 1 << 30;

struct Word16 {
  alignas(16) uint32_t parts[4];
};

/// Words from the beginning of a line to `word`.
template <typename Word>
__device__ int64_t after_line(const Word* word) {
  return static_cast<int64_t>(reinterpret_cast<uintptr_t>(word) % kLine / sizeof(Word));
}

template <typename Word>
__global__ void rows_by_warps(const Word* table, const int64_t* ids, int64_t count, int64_t words, Word* out) {
  const int64_t warps = int64_t{gridDim.x} * kWarps;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  for (int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / kLanes; row < count; row += warps) {
    const Word* const from = table + ids[row] * words;
    for (int64_t word = lane - after_line(from); word < words; word += kLanes)
      if (word >= 0) out[row * words + word] = from[word];
  }
}

template <typename Word>
__global__ void rows_staged(const Word* table, const int64_t* ids, int64_t count, int64_t words, Word* out) {
  constexpr int kStage = kReads * kLanes;
  __shared__ Word stages[kWarps][kStage];
  const int64_t warps = int64_t{gridDim.x} * kWarps;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  Word* const stage = stages[threadIdx.x / kLanes];
  for (int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / kLanes; row < count; row += warps) {
    const Word* const from = table + ids[row] * words;
    Word* const to = out + row * words;
    for (int64_t begin = -after_line(from); begin < words; begin += kStage) {
#ifdef __CUDACC__
#pragma unroll
#endif
      for (int k = lane; k < kStage; k += kLanes)
        if (begin + k >= 0 && begin + k < words) stage[k] = from[begin + k];
      __syncwarp();
      const int64_t first = begin < 0 ? 0 : begin, end = begin + kStage < words ? begin + kStage : words;
      for (int64_t word = first - after_line(to + first) + lane; word < end; word += kLanes)
        if (word >= first) to[word] = stage[word - begin];
      __syncwarp();
    }
  }
}

template <typename Word>
int run(int staged, const void* table, const int64_t* ids, int64_t count, int64_t row_bytes, void* out,
        cudaStream_t stream) {
  const int64_t words = row_bytes / static_cast<int64_t>(sizeof(Word));
  const auto blocks = static_cast<unsigned>(std::min((count + kWarps - 1) / kWarps, kMostBlocks));
  const auto* const rows = static_cast<const Word*>(table);
  auto* const to = static_cast<Word*>(out);
  if (staged != 0)
    REFERENCE_LAUNCH(rows_staged<Word>, blocks, kWarps * kLanes, stream, rows, ids, count, words, to);
  else
    REFERENCE_LAUNCH(rows_by_warps<Word>, blocks, kWarps * kLanes, stream, rows, ids, count, words, to);
  return static_cast<int>(cudaGetLastError());
}

}  // namespace

/// Rows `ids` of a table, one after the other into `out`; `staged`: through shared memory. Rows, table and `out` are
/// whole words of 4 bytes. What CUDA says of the launch.
extern "C" int reference_gather(int staged, const void* table, const int64_t* ids, int64_t count, int64_t row_bytes,
                                void* out, void* stream) {
  if (count == 0) return 0;
  const uint64_t bits =
      reinterpret_cast<uintptr_t>(table) | reinterpret_cast<uintptr_t>(out) | static_cast<uint64_t>(row_bytes);
  auto* const on = static_cast<cudaStream_t>(stream);
  if (bits % 16 == 0) return run<Word16>(staged, table, ids, count, row_bytes, out, on);
  if (bits % 8 == 0) return run<uint64_t>(staged, table, ids, count, row_bytes, out, on);
  return run<uint32_t>(staged, table, ids, count, row_bytes, out, on);
}
