// Copies and fills: what lies where is checked when they are asked for, they are done in the order of the stream.
#include <cstring>
#include <simulator.hpp>
#include <vector>

#include "address_map.hpp"
#include "call.hpp"
#include "streams.hpp"

namespace simulator {
namespace {

/// Rows of `width` bytes.
struct Copy {
  std::byte* to;
  size_t to_pitch;
  const std::byte* from;
  size_t from_pitch;
  size_t width, height;

  void run() const {
    for (size_t row = 0; row < height; ++row) std::memcpy(to + row * to_pitch, from + row * from_pitch, width);
  }
  size_t to_bytes() const { return (height - 1) * to_pitch + width; }
  size_t from_bytes() const { return (height - 1) * from_pitch + width; }
};

bool fits(cudaMemcpyKind kind, Place to, Place from) {
  if (to == Place::kSplit || from == Place::kSplit) return false;
  if (kind == cudaMemcpyDefault) return true;
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  return on_device(to) == to_device && on_device(from) == from_device;
}

cudaError_t copy_async(Copy copy, cudaMemcpyKind kind, cudaStream_t stream) {
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
  if (copy.height > 1 && (copy.to_pitch < copy.width || copy.from_pitch < copy.width))
    return cudaErrorInvalidPitchValue;
  const auto found = Streams::get().find(stream);
  if (!found && !is_null(stream)) return cudaErrorInvalidResourceHandle;
  if (copy.width == 0 || copy.height == 0) return cudaSuccess;
  if (copy.to == nullptr || copy.from == nullptr) return cudaErrorInvalidValue;
  const Place to = AddressMap::get().place(copy.to, copy.to_bytes());
  const Place from = AddressMap::get().place(copy.from, copy.from_bytes());
  if (!fits(kind, to, from)) return cudaErrorInvalidValue;
  if (is_null(stream)) return enqueue(stream, [copy] { copy.run(); });

  // Pageable memory has been read when the function returns, and written too.
  if (from == Place::kPageable && to != Place::kPageable) {
    std::vector<std::byte> staged(copy.width * copy.height);
    Copy{staged.data(), copy.width, copy.from, copy.from_pitch, copy.width, copy.height}.run();
    return enqueue(stream, [copy, staged = std::move(staged)]() mutable {
      copy.from = staged.data();
      copy.from_pitch = copy.width;
      copy.run();
    });
  }
  const cudaError_t error = enqueue(stream, [copy] { copy.run(); });
  if (error == cudaSuccess && to == Place::kPageable) found->wait();
  return error;
}

Copy flat(void* to, const void* from, size_t bytes) {
  return {static_cast<std::byte*>(to), bytes, static_cast<const std::byte*>(from), bytes, bytes, 1};
}

cudaError_t fill_async(void* to, int value, size_t bytes, cudaStream_t stream) {
  if (!is_null(stream) && !Streams::get().find(stream)) return cudaErrorInvalidResourceHandle;
  if (bytes == 0) return cudaSuccess;
  const Place place = AddressMap::get().place(to, bytes);
  if (!on_device(place) && !pinned(place)) return cudaErrorInvalidValue;
  return enqueue(stream, [=] { std::memset(to, value, bytes); });
}

}  // namespace
}  // namespace simulator

using namespace simulator;

cudaError_t cudaMemcpy(void* dst, const void* src, size_t count, cudaMemcpyKind kind) {
  return call([&] { return copy_async(flat(dst, src, count), kind, nullptr); });
}

cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t count, cudaMemcpyKind kind, cudaStream_t stream) {
  return call([&] { return copy_async(flat(dst, src, count), kind, stream); });
}

cudaError_t cudaMemcpy2DAsync(void* dst, size_t dpitch, const void* src, size_t spitch, size_t width, size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream) {
  return call([&] {
    const Copy copy{static_cast<std::byte*>(dst), dpitch, static_cast<const std::byte*>(src), spitch, width, height};
    return copy_async(copy, kind, stream);
  });
}

cudaError_t cudaMemset(void* devPtr, int value, size_t count) {
  return call([&] { return fill_async(devPtr, value, count, nullptr); });
}

cudaError_t cudaMemsetAsync(void* devPtr, int value, size_t count, cudaStream_t stream) {
  return call([&] { return fill_async(devPtr, value, count, stream); });
}
