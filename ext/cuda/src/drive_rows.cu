// The kernel that reads rows from drives: tiering/nvme/drive_rows.hpp by whole warps, with the memory of a device.
//
// Ordering:   a drive writes a page and then its completion to the same device. Most devices see them in that order once they
//             have acquired the completion; for others the host flushes in between, and a second kernel copies. Commands are
//             visible to the drive before the doorbell rings.
#include <tiering/cuda/drives.hpp>
#include <tiering/cuda/launch.hpp>

#ifdef __CUDACC__
#include <cuda/atomic>
#else
#include <simulated_warp.hpp>
#endif

namespace tiering::cuda {
namespace {

#ifndef __CUDACC__
using simulator::WholeWarp;
#else
struct DeviceLink {
  TIERING_DEVICE static uint32_t load_acquire(const uint32_t* word) {
    using Shared = ::cuda::atomic_ref<uint32_t, ::cuda::thread_scope_system>;
    return Shared(*const_cast<uint32_t*>(word)).load(::cuda::memory_order_acquire);
  }
  TIERING_DEVICE static void ring(uint32_t* bell, uint32_t value) {
    ::cuda::atomic_thread_fence(::cuda::memory_order_acq_rel, ::cuda::thread_scope_system);
    asm volatile("st.mmio.relaxed.sys.global.u32 [%0], %1;" ::"l"(bell), "r"(value) : "memory");
  }
  TIERING_DEVICE static void least(unsigned long long* word, unsigned long long value) {
    atomicMin_system(word, value);
  }
  TIERING_DEVICE static uint32_t claim(uint32_t* word, uint32_t count) { return atomicAdd(word, count); }
  TIERING_DEVICE static void pause(uint32_t tries) { __nanosleep(tries < 16 ? 32 + 16 * tries : 288); }
  TIERING_DEVICE static uint64_t nanoseconds() {
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
  }
};

struct WholeWarp {
  using Link = DeviceLink;
  static constexpr uint32_t kLanes = 32, kInFlight = 8;

  TIERING_DEVICE uint32_t lane() const { return threadIdx.x; }
  TIERING_DEVICE uint32_t number() const { return blockIdx.x; }
  TIERING_DEVICE uint32_t ballot(bool vote) const { return __ballot_sync(~0U, vote); }
  TIERING_DEVICE uint32_t count(uint32_t votes) const { return __popc(votes); }
  TIERING_DEVICE uint32_t lowest(uint32_t votes) const { return votes != 0 ? __ffs(votes) - 1 : kLanes; }
  TIERING_DEVICE uint32_t shuffle(uint32_t value, uint32_t from) const { return __shfl_sync(~0U, value, from); }
  TIERING_DEVICE void sync() const { __syncwarp(); }

  /// Each lane loads kInFlight words before it stores the first.
  template <typename Word>
  TIERING_DEVICE void copy_words(const PieceCopy (&copies)[PieceCopy::kTogether], uint32_t most) const {
    constexpr uint32_t kSteps = kInFlight / PieceCopy::kTogether, kStep = kLanes * sizeof(Word);
    for (uint32_t begin = lane() * sizeof(Word); begin < most; begin += kSteps * kStep) {
      Word words[PieceCopy::kTogether][kSteps];
      TIERING_UNROLL
      for (int i = 0; i < PieceCopy::kTogether; ++i) {
        TIERING_UNROLL
        for (uint32_t k = 0, at = begin; k < kSteps; ++k, at += kStep)
          if (at < copies[i].bytes)
            words[i][k] = __ldcg(reinterpret_cast<const Word*>(copies[i].from + at));  // L1 may have an older page
      }
      TIERING_UNROLL
      for (int i = 0; i < PieceCopy::kTogether; ++i) {
        TIERING_UNROLL
        for (uint32_t k = 0, at = begin; k < kSteps; ++k, at += kStep)
          if (at < copies[i].bytes) *reinterpret_cast<Word*>(copies[i].to + at) = words[i][k];
      }
    }
  }
  TIERING_DEVICE void copy(const PieceCopy (&copies)[PieceCopy::kTogether]) const {
    uint64_t bits = 0;
    uint32_t most = 0;
    TIERING_UNROLL
    for (const PieceCopy& copy : copies) {
      bits |= reinterpret_cast<uintptr_t>(copy.to) | reinterpret_cast<uintptr_t>(copy.from) | copy.bytes;
      most = most < copy.bytes ? copy.bytes : most;
    }
    if (bits % 16 == 0)
      copy_words<uint4>(copies, most);
    else if (bits % 4 == 0)
      copy_words<unsigned>(copies, most);
    else
      copy_words<unsigned char>(copies, most);
  }
};
#endif

}  // namespace

__global__ void __launch_bounds__(WholeWarp::kLanes)
    drive_rows_kernel(const DriveSet drives, const DriveRowList list, const RowPieces pieces) {
  drive_rows(WholeWarp(), drives, list, pieces);
}

__global__ void __launch_bounds__(WholeWarp::kLanes)
    copy_drive_rows_kernel(const DriveSet drives, const DriveRowList list, const RowPieces pieces) {
  copy_drive_rows(WholeWarp(), drives, list, pieces);
}

namespace {

template <typename Kernel>
void launch_warps(Kernel kernel, const DriveSet& drives, const DriveRowList& list, cudaStream_t stream) {
  launch("reading rows from drives", kernel, int64_t{drives.num_drives} * drives.pairs, WholeWarp::kLanes, stream,
         drives, list, RowPieces(list.geometry, list.row_bytes));
}

}  // namespace

void read_drive_rows(const DriveSet& drives, const DriveRowList& list, cudaStream_t stream) {
  launch_warps(drive_rows_kernel, drives, list, stream);
}

void copy_drive_rows(const DriveSet& drives, const DriveRowList& list, cudaStream_t stream) {
  launch_warps(copy_drive_rows_kernel, drives, list, stream);
}

}  // namespace tiering::cuda
