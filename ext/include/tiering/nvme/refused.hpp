// The error of a read whose command a controller has refused or could not carry out.
#pragma once

#include <cstdint>
#include <string>
#include <tiering/io/read_engine.hpp>

namespace tiering::nvme {

/// `status` is that of the completion; `trouble` what the controller has to say, or empty.
IoError refused_error(const ImageFile& image, const Read& read, uint32_t status, const std::string& trouble);

}  // namespace tiering::nvme
