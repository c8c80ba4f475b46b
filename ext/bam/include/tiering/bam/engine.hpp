// The engine bam: a thread of the host submits reads to drives themselves.
#pragma once

#include <memory>
#include <tiering/bam/drive.hpp>
#include <tiering/io/read_engine.hpp>
#include <tiering/nvme/softnvme_engine.hpp>
#include <vector>

namespace tiering::bam {

/// Reads image k of `images` from drive k, which holds it from its first block on (`tiering export --to raw --device`):
/// of the image's own file, only name and size are looked at. Several engines may share drives, which take a pair of
/// queues for each.
std::unique_ptr<ReadEngine> make_bam_engine(const ImageSet& images, const EngineOptions& options,
                                            std::vector<std::shared_ptr<Drive>> drives,
                                            std::chrono::nanoseconds patience = nvme::kPatience);

}  // namespace tiering::bam
