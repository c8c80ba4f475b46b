// Kernels that read a wave of blocks: one writes the commands, one rings, and a later one waits for what arrives.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <tiering/cuda/nvme_reads.hpp>

namespace tiering::cuda {

/// A read of a wave: command number `ahead` of those that the wave gives to a queue.
struct WaveRead {
  uint64_t block;
  uint32_t blocks;
  uint32_t queue;
  uint32_t ahead;
  uint32_t request;
};

/// What a queue has of a wave: `count` commands, and as many results from `first` on.
struct WaveShare {
  uint32_t first;
  uint32_t count;
};

/// Tables of a wave, in memory that host and GPU can read.
struct Wave {
  WaveRead* reads = nullptr;
  WaveShare* shares = nullptr;  ///< by queue
  NvmeResult* results = nullptr;
  uint32_t num_reads = 0;
};

/// Puts on a stream: commands, and then a doorbell for each queue. They must fit the queues.
void submit_wave(const NvmeQueues& queues, const Wave& wave, cudaStream_t stream);
/// Puts on a stream: waiting for as many completions of each queue as it has commands in the wave. They may be those of
/// a wave that was submitted later.
void complete_wave(const NvmeQueues& queues, const Wave& wave, cudaStream_t stream);

}  // namespace tiering::cuda
