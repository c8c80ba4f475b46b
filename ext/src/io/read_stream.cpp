#include <algorithm>
#include <tiering/read_stream.hpp>

namespace tiering {
namespace {

constexpr int kThreads = 2;

}  // namespace

ReadStream::ReadStream(const DirectFile& file, int64_t begin, int64_t end)
    : end_(end), aside_(file, kStepBytes, kSlots, kThreads) {
  const int64_t first = begin / kStepBytes * kStepBytes;
  for (int64_t ahead = 0; ahead < kSlots - 1; ++ahead) request(first + ahead * kStepBytes);
}

void ReadStream::request(int64_t at) {
  if (at < end_)
    aside_.request(static_cast<int>(at / kStepBytes % kSlots), at, std::min(kStepBytes, end_ - at));
}

const char* ReadStream::step(int64_t at) {
  request(at + (kSlots - 1) * kStepBytes);  // in the place of the step before, which is done with
  return aside_.wait(static_cast<int>(at / kStepBytes % kSlots));
}

}  // namespace tiering
