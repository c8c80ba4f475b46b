// Engines whose NVMe commands a thread of the host submits, whoever serves them.
#pragma once

#include <chrono>
#include <memory>
#include <tiering/io/read_engine.hpp>
#include <tiering/nvme/controller.hpp>

namespace tiering::nvme {

/// A pair of queues for each image, made when the first read of the image comes. Reads land in memory of the engine's
/// own, so that a read that never comes back does no harm. It is called as `server` is.
std::unique_ptr<ReadEngine> make_nvme_engine(PairServer server, const ImageSet& images, const EngineOptions& options,
                                             std::chrono::nanoseconds patience = kPatience);

}  // namespace tiering::nvme
