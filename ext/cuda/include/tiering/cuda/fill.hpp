// From a file to the memory of a GPU: what a tier is filled by.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <tiering/io/image_set.hpp>

namespace tiering::cuda {

/// Bytes [offset, offset + bytes) of a file, and where on the device they go.
struct FillRequest {
  std::string path;
  int64_t offset = 0;
  int64_t bytes = 0;
  std::byte* into = nullptr;
};

/// Reads past the page cache into two pinned buffers in turn: while one is being read into, the other is copied to the
/// device, so that the slower of disk and link sets the pace. Returns when everything is there.
///
/// `engine`: io_uring or threads. `chunk`: bytes of a buffer. Throws IoError, CudaError, OutOfMemory; what lies at
/// `into` is then unspecified. Memory: 2 * chunk and a little, pinned. Cost: bytes / min(disk, link).
void fill_device(const FillRequest& request, const std::string& engine, DirectMode direct, int64_t chunk);

}  // namespace tiering::cuda
