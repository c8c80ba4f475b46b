// An engine whose NVMe commands a GPU submits: what it reads lands where host and GPU can read it.
#pragma once

#include <chrono>
#include <memory>
#include <tiering/io/read_engine.hpp>
#include <tiering/nvme/controller.hpp>

namespace tiering::cuda {

/// On the device that is current, whoever serves; called as `server` is, with "-gpu". Queues and controllers are made
/// with the first batch, and anew after reads were given up; what those land in is kept for good. In a forked child it
/// reads nothing: finish() throws. Lent buffers are page-locked. Errors of CUDA come as IoError.
///
/// `patience`: that the GPU has for half of the reads in flight.
std::unique_ptr<ReadEngine> make_gpu_nvme_engine(nvme::PairServer server, const ImageSet& images,
                                                 const EngineOptions& options,
                                                 std::chrono::nanoseconds patience = nvme::kPatience);

}  // namespace tiering::cuda
