// The kernel that reads rows from drives: tiering/nvme/drive_rows.hpp by whole warps, with the memory of a device.
//
// Ordering:   a drive writes a page and then its completion to the same device, which sees them in that order once it has
//             acquired the completion. Commands are visible to the drive before the doorbell rings.
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
  TIERING_DEVICE static void pause(uint32_t tries) { __nanosleep(tries < 16 ? 32 + 16 * tries : 288); }
  TIERING_DEVICE static uint64_t nanoseconds() {
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
  }
};

struct WholeWarp {
  using Link = DeviceLink;
  static constexpr uint32_t kLanes = 32;

  TIERING_DEVICE uint32_t lane() const { return threadIdx.x; }
  TIERING_DEVICE uint32_t number() const { return blockIdx.x; }
  TIERING_DEVICE uint32_t ballot(bool vote) const { return __ballot_sync(~0U, vote); }
  TIERING_DEVICE uint32_t count(uint32_t votes) const { return __popc(votes); }
  TIERING_DEVICE uint32_t lowest(uint32_t votes) const { return votes != 0 ? __ffs(votes) - 1 : kLanes; }
  TIERING_DEVICE uint32_t shuffle(uint32_t value, uint32_t from) const { return __shfl_sync(~0U, value, from); }
  TIERING_DEVICE void sync() const { __syncwarp(); }

  template <typename Word>
  TIERING_DEVICE void copy_words(std::byte* to, const std::byte* from, uint32_t bytes) const {
    TIERING_UNROLL
    for (uint32_t at = lane() * sizeof(Word); at < bytes; at += kLanes * sizeof(Word))
      *reinterpret_cast<Word*>(to + at) =
          __ldcg(reinterpret_cast<const Word*>(from + at));  // L1 may have an older page
  }
  TIERING_DEVICE void copy(std::byte* to, const std::byte* from, uint32_t bytes) const {
    const uint64_t bits = reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) | bytes;
    if (bits % 16 == 0)
      copy_words<uint4>(to, from, bytes);
    else if (bits % 4 == 0)
      copy_words<unsigned>(to, from, bytes);
    else
      copy_words<unsigned char>(to, from, bytes);
  }
};
#endif

}  // namespace

__global__ void __launch_bounds__(WholeWarp::kLanes) drive_rows_kernel(const DriveSet drives, const DriveRowList list) {
  drive_rows(WholeWarp(), drives, list);
}

void read_drive_rows(const DriveSet& drives, const DriveRowList& list, cudaStream_t stream) {
  launch("reading rows from drives", drive_rows_kernel, int64_t{drives.num_drives} * drives.pairs, WholeWarp::kLanes,
         stream, drives, list);
}

}  // namespace tiering::cuda
