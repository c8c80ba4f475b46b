// Doorbells of a device on the bus for the kernels of a GPU, which ring by storing to the device's registers.
//
// Not run on hardware: some versions of the NVIDIA driver are known to refuse registers of devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <tiering/nvme/queue.hpp>

namespace tiering::cuda {

/// Gives the current GPU the registers of a device, which are mapped into this process, for as long as it lives. A GPU
/// can have them once: all that are made of the same registers share that. Ends with the same GPU as the current one.
/// Throws CudaError where the GPU cannot have them.
class GpuBells {
 public:
  explicit GpuBells(std::span<std::byte> registers);
  ~GpuBells();
  GpuBells(const GpuBells&) = delete;
  GpuBells& operator=(const GpuBells&) = delete;

  /// A pair of queues as kernels ring it. Its entries lie where they lay: in memory that the GPU can use.
  nvme::QueuePair of(nvme::QueuePair pair) const;

 private:
  uint32_t* seen(const uint32_t* bell) const;

  std::byte* host_;
  std::byte* there_;
  int device_ = 0;
};

}  // namespace tiering::cuda
