#include <algorithm>
#include <array>
#include <span>
#include <tiering/cuda/fill.hpp>
#include <tiering/cuda/memory.hpp>
#include <tiering/io/stream_reader.hpp>

namespace tiering::cuda {

namespace {

/// A pinned buffer whose beginning is aligned for direct reads.
struct Staging {
  explicit Staging(int64_t bytes) : memory(bytes + StreamReader::kAlignment), room(bytes) {}

  std::span<std::byte> span() const {
    const auto address = reinterpret_cast<uintptr_t>(memory.data());
    const uintptr_t aligned =
        (address + StreamReader::kAlignment - 1) / StreamReader::kAlignment * StreamReader::kAlignment;
    return {memory.data() + (aligned - address), static_cast<size_t>(room)};
  }

  PinnedMemory memory;
  int64_t room;
  GpuEvent copied;
};

}  // namespace

void fill_device(const FillRequest& request, const std::string& engine, DirectMode direct, int64_t chunk) {
  if (request.bytes == 0) return;
  chunk = std::min(chunk, request.bytes);
  std::array<Staging, 2> staging{Staging(chunk + StreamReader::kPadding), Staging(chunk + StreamReader::kPadding)};
  const GpuStream stream;
  StreamReader reader({request.path}, engine, direct);
  const std::array<std::span<std::byte>, 2> buffers{staging[0].span(), staging[1].span()};
  reader.register_buffers(buffers);
  for (int64_t done = 0, turn = 0; done < request.bytes; ++turn) {
    const Staging& into = staging[static_cast<size_t>(turn % 2)];
    const auto buffer = buffers[static_cast<size_t>(turn % 2)];
    const int64_t bytes = std::min(chunk, request.bytes - done);
    if (turn >= 2) into.copied.wait();
    const StreamRange range{0, request.offset + done, bytes, buffer.data(), static_cast<int64_t>(buffer.size())};
    reader.start({&range, 1});
    const std::byte* const begin = reader.finish().front();
    copy_async(request.into + done, begin, bytes, stream.get(), "filling a tier");
    into.copied.record(stream.get());
    done += bytes;
  }
  stream.synchronize();
}

}  // namespace tiering::cuda
