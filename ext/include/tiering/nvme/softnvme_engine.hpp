// The engine softnvme: a thread of the host submits NVMe commands, as a GPU would, to controllers made of software.
#pragma once

#include <chrono>
#include <memory>
#include <tiering/io/read_engine.hpp>
#include <tiering/nvme/soft_controller.hpp>

namespace tiering::nvme {

/// Nothing came back for so long: reads are given up. As long as Linux waits for a drive.
inline constexpr auto kPatience = std::chrono::seconds(30);

/// A pair of queues and a controller for each image, made when the first read of the image comes. Reads land in memory
/// of the engine's own, so that a read that never comes back does no harm.
std::unique_ptr<ReadEngine> make_softnvme_engine(const ImageSet& images, const EngineOptions& options,
                                                 const MediumMaker& medium,
                                                 std::chrono::nanoseconds patience = kPatience);

/// The same with queues that somebody else serves; called `name`.
std::unique_ptr<ReadEngine> make_nvme_engine(const char* name, const ImageSet& images, const EngineOptions& options,
                                             PairServer serve, std::chrono::nanoseconds patience = kPatience);

}  // namespace tiering::nvme
