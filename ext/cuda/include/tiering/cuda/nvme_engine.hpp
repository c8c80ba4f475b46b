// An engine whose NVMe commands a GPU submits: what it reads lands where host and GPU can read it.
#pragma once

#include <chrono>
#include <memory>
#include <tiering/io/read_engine.hpp>
#include <tiering/nvme/softnvme_engine.hpp>

namespace tiering::cuda {

/// The engine "softnvme-gpu", on the device that is current. Queues and controllers are made with the first batch, and
/// anew after reads were given up; what those land in is kept for good. In a forked child it reads nothing: finish()
/// throws. Lent buffers are page-locked. Errors of CUDA come as IoError.
///
/// `patience`: that the GPU has for half of the reads in flight.
std::unique_ptr<ReadEngine> make_gpu_nvme_engine(const ImageSet& images, const EngineOptions& options,
                                                 const nvme::MediumMaker& medium,
                                                 std::chrono::nanoseconds patience = nvme::kPatience);

}  // namespace tiering::cuda
