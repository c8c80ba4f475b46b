// Approach:   no thread waits for another one. Places in the queues follow from numbers that the host gave, so that the
//             commands of a wave are written by as many threads as there are; the end of that kernel makes them visible
//             to the one that rings, a thread for each queue. Nothing of the GPU is held until the third kernel, whose
//             warps each wait for the completions of a queue, lane by lane.
// Ordering:   see queue.hpp. What the host wrote before a launch, kernels see; what they write, the host sees after an
//             event behind them.
// Bounds:     a wait ends with the patience or the abort word, and no later lane waits for what is lost by then.
#include <algorithm>
#include <tiering/cuda/device_link.hpp>
#include <tiering/cuda/launch.hpp>

#include "nvme_waves.hpp"

namespace tiering::cuda {
namespace {

constexpr int kLanes = 32, kThreads = 256;
constexpr int64_t kMostBlocks = 32;  // of a kernel that submits: a part of the multiprocessors

__global__ void __launch_bounds__(kThreads) write_commands(const NvmeQueues queues, const Wave wave) {
  for (int64_t i = first_item(); i < wave.num_reads; i += item_stride()) {
    const WaveRead read = wave.reads[i];
    NvmeQueue& queue = queues.queues[read.queue];
    if (queue.spent != 0) continue;  // what is waited for then is late at once
    const uint32_t number = queue.books.submitted + read.ahead;
    const uint32_t place = place_of(queue.pair, queue.books, number);
    nvme::BlockRead what;
    what.block = read.block;
    what.blocks = read.blocks;
    what.into = queue.prps(place, read.blocks * queue.block_bytes);
    write_command(queue.pair, queue.books, number, read.request, what);
  }
}

__global__ void ring_doorbells(const NvmeQueues queues, const Wave wave) {
  for (int64_t q = first_item(); q < queues.count(); q += item_stride()) {
    NvmeQueue& queue = queues.queues[q];
    const uint32_t count = wave.shares[q].count;
    if (count > 0 && queue.spent == 0) nvme::ring_submitted<DeviceLink>(queue.pair, queue.books, count);
  }
}

/// The simulated device runs the lanes of a warp one after the other: there the last one comes when all others are done.
TIERING_DEVICE void sync_warp() {
#ifdef __CUDACC__
  __syncwarp();
#endif
}

/// A warp for each queue.
__global__ void __launch_bounds__(kLanes) await_completions(const NvmeQueues queues, const Wave wave) {
  NvmeQueue& queue = queues.queues[blockIdx.x];
  const WaveShare share = wave.shares[blockIdx.x];
  const uint32_t lane = threadIdx.x, first = queue.books.reaped;
  nvme::Patience patience;
  patience.abort = queues.abort;
  patience.until = __ldcg(&queue.spent) != 0 ? 0 : DeviceLink::nanoseconds() + queues.patience;
  for (uint32_t i = lane; i < share.count; i += kLanes) {
    const nvme::Reaped reaped = nvme::await<DeviceLink>(queue.pair, queue.books, first + i, patience);
    if (reaped.outcome != nvme::Outcome::done) {
      atomicExch(&queue.spent, 1U);
      patience.until = 0;
    }
    NvmeResult& result = wave.results[share.first + i];
    result.data = queue.place(reaped.id);
    result.request = reaped.request;
    result.queue = blockIdx.x;
    result.status = reaped.status;
    result.outcome = reaped.outcome;
  }
  sync_warp();
  // A spent queue is not used any more: nobody needs its doorbell.
  if (lane == kLanes - 1 && share.count > 0 && __ldcg(&queue.spent) == 0)
    nvme::ring_reaped<DeviceLink>(queue.pair, queue.books, share.count);
}

}  // namespace

void submit_wave(const NvmeQueues& queues, const Wave& wave, cudaStream_t stream) {
  const int64_t blocks = std::clamp<int64_t>((wave.num_reads + kThreads - 1) / kThreads, 1, kMostBlocks);
  launch("writing NVMe commands", write_commands, blocks, kThreads, stream, queues, wave);
  launch("ringing doorbells", ring_doorbells, (queues.count() + kLanes - 1) / kLanes, kLanes, stream, queues, wave);
}

void complete_wave(const NvmeQueues& queues, const Wave& wave, cudaStream_t stream) {
  launch("waiting for NVMe completions", await_completions, queues.count(), kLanes, stream, queues, wave);
}

}  // namespace tiering::cuda
