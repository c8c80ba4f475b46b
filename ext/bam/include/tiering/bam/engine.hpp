// Drives as servers of pairs of queues: for a GPU that submits, or the engine bam, where a thread of the host does.
#pragma once

#include <memory>
#include <tiering/bam/drive.hpp>
#include <tiering/io/read_engine.hpp>
#include <tiering/nvme/controller.hpp>
#include <vector>

namespace tiering::bam {

using Drives = std::vector<std::shared_ptr<Drive>>;

/// Drive k serves image k, which it holds from its first block on (`tiering export --to raw --device`): of the image's
/// own file, only name and size are looked at. Several engines may share drives, which take pairs of queues for each.
/// A GPU's commands lie in its own memory; completions lie with what reads bring, which they cannot overtake then.
nvme::PairServer drive_server(const ImageSet& images, const EngineOptions& options, Drives drives);

std::unique_ptr<ReadEngine> make_bam_engine(const ImageSet& images, const EngineOptions& options, Drives drives,
                                            std::chrono::nanoseconds patience = nvme::kPatience);

}  // namespace tiering::bam
