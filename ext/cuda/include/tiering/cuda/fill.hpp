// From a file to the memory of a GPU: what a tier is filled by.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tiering::cuda {

/// Fills device memory from bytes [offset, offset + bytes) of a file, read past the page cache where that works into two
/// pinned buffers in turn: while one is read into, the other is copied, so that the slower of disk and link sets the pace.
///
/// `engine`: io_uring or threads. `chunk`: bytes of a buffer. Throws IoError, CudaError, OutOfMemory; what lies at
/// `into` is then unspecified. Memory: 2 * chunk and a little, pinned. Cost: bytes / min(disk, link).
void fill_device(std::byte* into, const std::string& path, int64_t offset, int64_t bytes, const std::string& engine,
                 int64_t chunk);

}  // namespace tiering::cuda
