// Drives that a kernel plays, for a GPU without any: what reading rows from drives costs when the drives cost nothing.
//
// One drive. A warp of the other kernel for each pair of queues completes what is asked for, pages and all, in order.
#include <cuda_runtime.h>

#include <vector>

#include "../../ext/cuda/src/drive_rows.cu"

namespace {

using namespace tiering;
using tiering::cuda::DeviceLink;
using tiering::cuda::WholeWarp;

__global__ void play_drive(const DriveSet drives, const std::byte* image, const uint32_t* end) {
  const DriveQueue& queue = drives.queues[blockIdx.x];
  const WholeWarp warp;
  for (uint32_t taken = 0; DeviceLink::load_acquire(end) == 0;) {
    for (const uint32_t tail = DeviceLink::load_acquire(queue.submit_bell); taken % drives.depth != tail; ++taken) {
      const auto& words = queue.commands[taken % drives.depth].words;
      const auto wide = [&words](int at) { return words[at] | uint64_t{words[at + 1]} << 32; };
      const uint32_t part = (((words[12] & 0xffff) + 1) << drives.block_bits) / PieceCopy::kTogether;
      auto* const to = reinterpret_cast<std::byte*>(wide(6));
      const std::byte* const from = image + (wide(10) << drives.block_bits);
      PieceCopy copies[PieceCopy::kTogether];
      TIERING_UNROLL
      for (int i = 0; i < PieceCopy::kTogether; ++i) copies[i] = {to + i * part, from + i * part, part};
      warp.copy(copies);
      warp.sync();
      if (warp.lane() == 0)
        DeviceLink::ring(&queue.completions[taken % drives.depth].words[3],
                         words[0] >> 16 | phase_of(taken, drives.depth) << 16);
    }
  }
}

/// Queues in memory of the GPU, and what was begun.
struct Run {
  std::vector<void*> owned;
  uint32_t* words = nullptr;  // pinned: stop, end
  cudaStream_t player = nullptr;

  template <typename T>
  T* make(size_t count, int fill = 0) {
    void* memory = nullptr;
    cudaMalloc(&memory, count * sizeof(T));
    cudaMemset(memory, fill, count * sizeof(T));
    owned.push_back(memory);
    return static_cast<T*>(memory);
  }
};

}  // namespace

/// Puts the reading of `count` rows (numbers within the drive, ascending) on a stream; `silent`: by a drive that never
/// answers, for `seconds`. Null where memory is short.
extern "C" void* nvme_begin(int pairs, int depth, int64_t page_bytes, int64_t row_bytes, const int64_t* rows,
                            const uint32_t* targets, const uint32_t* count, std::byte* out, const std::byte* image,
                            bool silent, double seconds, cudaStream_t stream) {
  auto* const run = new Run;
  std::vector<DriveQueue> queues(pairs);
  for (DriveQueue& queue : queues) {
    auto* const places = run->make<std::byte>(depth * page_bytes);
    std::vector<uint64_t> chunks;
    std::vector<uint16_t> free_places;
    for (int64_t at = 0; at < depth * page_bytes; at += 1 << DriveQueue::kChunkBits)
      chunks.push_back(reinterpret_cast<uint64_t>(places + at));
    for (int i = 0; i < depth; ++i) free_places.push_back(static_cast<uint16_t>(i));
    auto* const known = run->make<uint64_t>(chunks.size());
    auto* const free = run->make<uint16_t>(depth);
    cudaMemcpy(known, chunks.data(), chunks.size() * 8, cudaMemcpyDefault);
    cudaMemcpy(free, free_places.data(), free_places.size() * 2, cudaMemcpyDefault);
    queue = {run->make<DriveCommand>(depth),
             run->make<DriveCompletion>(depth),
             run->make<uint32_t>(32),
             run->make<uint32_t>(32),
             places,
             known,
             free,
             run->make<DriveRead>(depth, 0xff)};
  }
  auto* const there = run->make<DriveQueue>(queues.size());
  cudaMemcpy(there, queues.data(), queues.size() * sizeof(DriveQueue), cudaMemcpyDefault);
  cudaMallocHost(&run->words, 64);
  run->words[0] = run->words[1] = 0;
  auto* const failure = reinterpret_cast<unsigned long long*>(run->words + 8);
  *failure = DriveFailure::kNone;
  const DriveSet drives{there,
                        1,
                        static_cast<uint32_t>(pairs),
                        static_cast<uint32_t>(depth),
                        9,
                        static_cast<uint64_t>(seconds * 1e9),
                        run->words,
                        failure,
                        run->make<uint32_t>(1)};
  if (cudaStreamCreateWithFlags(&run->player, cudaStreamNonBlocking) != cudaSuccess ||
      cudaGetLastError() != cudaSuccess)
    return nullptr;
  cudaDeviceSynchronize();
  if (!silent) play_drive<<<pairs, 32, 0, run->player>>>(drives, image, run->words + 1);
  const SsdGeometry geometry{0, row_bytes, page_bytes / row_bytes, page_bytes, page_bytes, 1};
  tiering::cuda::read_drive_rows(drives, {geometry, row_bytes, rows, targets, count, out}, stream);
  return run;
}

/// Waits, and gives back; whether all rows were read.
extern "C" bool nvme_end(void* begun, cudaStream_t stream) {
  auto* const run = static_cast<Run*>(begun);
  bool good = cudaStreamSynchronize(stream) == cudaSuccess;
  *static_cast<volatile uint32_t*>(run->words + 1) = 1;
  good = cudaStreamSynchronize(run->player) == cudaSuccess && good;
  good = good && *reinterpret_cast<unsigned long long*>(run->words + 8) == DriveFailure::kNone;
  for (void* memory : run->owned) cudaFree(memory);
  cudaFreeHost(run->words);
  cudaStreamDestroy(run->player);
  delete run;
  return good;
}
