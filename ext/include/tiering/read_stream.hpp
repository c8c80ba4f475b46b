// A scan over values that lie in a file as well as in memory mapped from it: past the page cache where the file
// is larger than what the cache may hold, so that nothing has to be mapped, unmapped and thrown out of it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <tiering/read_ahead.hpp>
#include <tiering/scratch_file.hpp>

namespace tiering {

/// Bytes [begin, end) of a file, read front to back in steps; some are always under way.
class ReadStream {
 public:
  static constexpr int64_t kStepBytes = int64_t{2} << 20;
  static constexpr int kSlots = 4;
  static constexpr int64_t kMemoryBytes = kSlots * (kStepBytes + kScratchAlignment);

  /// `file` must outlive the stream.
  ReadStream(const DirectFile& file, int64_t begin, int64_t end);

  /// The bytes of the step that begins at `at`, a multiple of kStepBytes; steps come in order.
  const char* step(int64_t at);

 private:
  void request(int64_t at);

  int64_t end_;
  ReadAside aside_;
};

/// Calls body(values, from, to) for steps of [begin, end) in order; values[from..to) are the entries. `file`, if
/// not null, holds them all from its begin on, and is read instead of `values`.
template <typename T, typename Body>
void for_steps(const DirectFile* file, const T* values, int64_t begin, int64_t end, Body&& body) {
  if (file == nullptr || begin >= end) {
    for_steps_ahead(values, begin, end, [&](int64_t from, int64_t to) { body(values, from, to); });
    return;
  }
  constexpr int64_t kItem = sizeof(T), kStep = ReadStream::kStepBytes / kItem;
  ReadStream stream(*file, begin * kItem, end * kItem);
  for (int64_t step = begin / kStep * kStep; step < end; step += kStep) {
    const T* const read = reinterpret_cast<const T*>(stream.step(step * kItem));
    body(read - step, std::max(begin, step), std::min(end, step + kStep));
  }
}

}  // namespace tiering
