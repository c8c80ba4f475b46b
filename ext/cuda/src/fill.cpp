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

void fill_device(std::byte* into, const std::string& path, int64_t offset, int64_t bytes, const std::string& engine,
                 int64_t chunk) {
  if (bytes == 0) return;
  chunk = std::min(chunk, bytes);
  std::array<Staging, 2> staging{Staging(chunk + StreamReader::kPadding), Staging(chunk + StreamReader::kPadding)};
  const GpuStream stream;
  StreamReader reader({path}, engine, DirectMode::automatic);
  const std::array<std::span<std::byte>, 2> buffers{staging[0].span(), staging[1].span()};
  reader.register_buffers(buffers);
  for (int64_t done = 0, turn = 0; done < bytes; ++turn) {
    const Staging& staged = staging[static_cast<size_t>(turn % 2)];
    const auto buffer = buffers[static_cast<size_t>(turn % 2)];
    const int64_t piece = std::min(chunk, bytes - done);
    if (turn >= 2) staged.copied.wait();
    const StreamRange range{0, offset + done, piece, buffer.data(), static_cast<int64_t>(buffer.size())};
    reader.start({&range, 1});
    const std::byte* const begin = reader.finish().front();
    copy_async(into + done, begin, piece, stream.get(), "filling a tier");
    staged.copied.record(stream.get());
    done += piece;
  }
  stream.synchronize();
}

}  // namespace tiering::cuda
