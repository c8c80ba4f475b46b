#include <algorithm>
#include <array>
#include <tiering/cuda/device.hpp>
#include <tiering/cuda/memory.hpp>
#include <tiering/io/stream.hpp>

namespace tiering::cuda {

int driver_version() {
  int version = 0;
  check(cudaDriverGetVersion(&version), "asking for the driver's version");
  return version;
}

int runtime_version() {
  int version = 0;
  check(cudaRuntimeGetVersion(&version), "asking for the runtime's version");
  return version;
}

int count_devices() {
  int count = 0;
  check(cudaGetDeviceCount(&count), "looking for a GPU");
  return count;
}

DeviceInfo device_info(int device) {
  cudaDeviceProp found;
  check(cudaGetDeviceProperties(&found, device), "describing a GPU");
  char bus[32] = {};
  check(cudaDeviceGetPCIBusId(bus, sizeof bus, device), "describing a GPU");
  int coherent = 0;
  check(cudaDeviceGetAttribute(&coherent, cudaDevAttrPageableMemoryAccessUsesHostPageTables, device),
        "describing a GPU");
  return {found.name,
          std::to_string(found.major) + "." + std::to_string(found.minor),
          found.multiProcessorCount,
          static_cast<int64_t>(found.totalGlobalMem),
          bus,
          coherent != 0};
}

int64_t free_bytes(int device) {
  const DeviceScope scope(device);
  size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "asking for free memory of the GPU");
  return static_cast<int64_t>(free);
}

void begin_thread(int device) {
  check(cudaSetDevice(device), "choosing the device");
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  check(cudaThreadExchangeStreamCaptureMode(&mode), "letting a thread work during captures");
}

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
