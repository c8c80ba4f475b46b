// What engines that read through NVMe queues make of their reads: blocks, and errors.
#pragma once

#include <cstdint>
#include <string>
#include <tiering/io/read_engine.hpp>
#include <tiering/nvme/controller.hpp>

namespace tiering::nvme {

/// The logical blocks that hold what a read asks for, as far as there are any; where they go is left open.
BlockRead blocks_of(const Controller& controller, const Read& read);

/// The error of a read whose command a controller has refused or could not carry out.
/// `status` is that of the completion; `trouble` what the controller has to say, or empty.
IoError refused_error(const ImageFile& image, const Read& read, uint32_t status, const std::string& trouble);

}  // namespace tiering::nvme
