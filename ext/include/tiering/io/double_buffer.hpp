// Two buffers that a file is read into by turns: one is used while the other is filled.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <tiering/io/direct_file.hpp>
#include <tiering/io/stream_reader.hpp>
#include <tiering/read_ahead.hpp>
#include <tiering/scratch_file.hpp>

namespace tiering {

/// Reads ranges of a file one ahead. The reads are those of a pool of threads: a ring would have to be filled up
/// while the caller computes.
class DoubleBuffer {
 public:
  /// Memory of two buffers.
  static constexpr int64_t memory_bytes(int64_t buffer_bytes) {
    return 2 * (scratch_aligned(buffer_bytes) + 2 * kScratchAlignment);
  }

  DoubleBuffer(ImageSet file, int64_t buffer_bytes);

  /// Begins to read bytes [offset, offset + bytes), offset a multiple of kScratchAlignment, into the buffer that
  /// take() did not return last.
  void request(int64_t offset, int64_t bytes);

  /// What was requested last, once it has arrived. Throws IoError.
  const char* take();

 private:
  int64_t room_;
  std::array<ScratchMemory, 2> memory_;
  size_t next_ = 0;
  StreamReader reader_;  ///< last: its reads end before their memory goes
};

/// Bytes that for_steps() holds beside the caller.
inline constexpr int64_t kStepBytes = int64_t{4} << 20, kStepMemory = DoubleBuffer::memory_bytes(kStepBytes);

/// Calls body(values, from, to) for steps of [begin, end) in order; values[from..to) are the entries. The file, if
/// there is one, holds them all, and is read instead of `values`: nothing has to be mapped, unmapped and thrown out
/// of the page cache.
template <typename T, typename Body>
void for_steps(const DirectFile& file, const T* values, int64_t begin, int64_t end, Body&& body) {
  if (file.path.empty() || begin >= end) {
    for_steps_ahead(values, begin, end, [&](int64_t from, int64_t to) { body(values, from, to); });
    return;
  }
  constexpr int64_t kItem = sizeof(T), kStep = kStepBytes / kItem;
  DoubleBuffer buffer(ImageSet::open({file.path}, DirectMode::on), kStepBytes);
  auto request = [&](int64_t step) { buffer.request(step * kItem, std::min(kStep, end - step) * kItem); };
  const int64_t first = begin / kStep * kStep;
  request(first);
  for (int64_t step = first; step < end; step += kStep) {
    const T* const read = reinterpret_cast<const T*>(buffer.take());
    if (step + kStep < end) request(step + kStep);
    if (file.passed)
      file.passed(step * kItem,
                  std::as_bytes(std::span(read, static_cast<size_t>(std::min(kStep, end - step)))));
    body(read - step, std::max(begin, step), std::min(end, step + kStep));
  }
}

}  // namespace tiering
