// Images that controllers made of software serve, and the engine softnvme: a thread of the host submits NVMe commands
// to them, as a GPU would.
#pragma once

#include <chrono>
#include <memory>
#include <tiering/io/read_engine.hpp>
#include <tiering/nvme/controller.hpp>
#include <tiering/nvme/soft_controller.hpp>

namespace tiering::nvme {

/// A controller for all pairs of queues of an image, which it reads by `medium`.
PairServer soft_server(const MediumMaker& medium);
/// The same by usual_medium(); a PairServerMaker.
PairServer usual_soft_server(const ImageSet& images, const EngineOptions& options);

std::unique_ptr<ReadEngine> make_softnvme_engine(const ImageSet& images, const EngineOptions& options,
                                                 const MediumMaker& medium,
                                                 std::chrono::nanoseconds patience = kPatience);

}  // namespace tiering::nvme
