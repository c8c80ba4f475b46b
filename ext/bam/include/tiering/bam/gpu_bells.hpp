// Doorbells of a drive for the kernels of a GPU, which ring by storing to the drive's registers.
//
// Not run on hardware: some versions of the NVIDIA driver are known to refuse registers of devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tiering/bam/drive.hpp>
#include <tiering/cuda/memory.hpp>

namespace tiering::bam {

/// Gives the current GPU the registers of a drive for as long as it lives, which is no longer than the drive. Throws
/// CudaError where the GPU cannot have them.
class GpuBells {
 public:
  explicit GpuBells(const Drive& drive)
      : host_(drive.registers().data()), registers_(host_, static_cast<int64_t>(drive.registers().size()), true) {}

  /// A pair of the drive's queues as kernels ring it. Its entries lie where they lay: in memory that the GPU can use.
  nvme::QueuePair of(nvme::QueuePair pair) const {
    pair.submit_bell = seen(pair.submit_bell);
    pair.complete_bell = seen(pair.complete_bell);
    return pair;
  }

 private:
  uint32_t* seen(const uint32_t* bell) const {
    return reinterpret_cast<uint32_t*>(registers_.device_address() +
                                       (reinterpret_cast<const std::byte*>(bell) - host_));
  }

  std::byte* host_;
  cuda::Registration registers_;
};

}  // namespace tiering::bam
