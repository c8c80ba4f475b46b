#include <tiering/io/double_buffer.hpp>
#include <utility>

namespace tiering {

DoubleBuffer::DoubleBuffer(ImageSet file, int64_t buffer_bytes)
    : room_(scratch_aligned(buffer_bytes) + kScratchAlignment),
      memory_{ScratchMemory(room_), ScratchMemory(room_)},
      reader_(std::move(file), "threads") {}

void DoubleBuffer::request(int64_t offset, int64_t bytes) {
  const StreamRange range{0, offset, bytes, reinterpret_cast<std::byte*>(memory_[next_].data()), room_};
  reader_.start({&range, 1});
}

const char* DoubleBuffer::take() {
  const std::byte* const begin = reader_.finish().front();
  next_ = 1 - next_;
  return reinterpret_cast<const char*>(begin);
}

}  // namespace tiering
