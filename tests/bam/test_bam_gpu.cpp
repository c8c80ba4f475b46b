// Kernels that ring the doorbells of a drive whose registers are emulated: two pairs of queues that libnvm made, read by
// the warps of tiering/cuda/page_rows.hpp.
#include <cstring>
#include <iostream>
#include <memory>
#include <string>
#include <tiering/bam/drive.hpp>
#include <tiering/bam/gpu_bells.hpp>
#include <tiering/cuda/check.hpp>
#include <tiering/cuda/memory.hpp>
#include <tiering/cuda/nvme_queues.hpp>
#include <tiering/cuda/page_rows.hpp>
#include <tiering/io/read_engine.hpp>
#include <tiering/nvme/queue_memory.hpp>
#include <vector>

#include "../cuda/device.hpp"
#include "check.hpp"
#include "emulated_drive.hpp"

using namespace tiering;
using namespace tiering::bam;

namespace {

constexpr uint32_t kDepth = 16, kPage = 4096, kPairs = 2, kRows = 300, kRowBytes = 96;

/// A pair of queues of a drive, its books in memory of the GPU.
struct GpuPair {
  GpuPair(Drive& drive, const GpuBells& bells)
      : layout{nullptr, kDepth, kPage}, memory(layout.bytes(), true), free_ids(kDepth * 2), in_flight(kDepth * 8) {
    layout.begin = memory.data();
    locked = cuda::Registration(memory.data(), static_cast<int64_t>(layout.bytes()));
    shared = drive.share({memory.data(), layout.bytes()});
    added = drive.add_pair(layout, *shared);
    queue.pair = bells.of(added->queues());
    std::vector<uint16_t> ids(kDepth);
    std::vector<nvme::InFlight> idle(kDepth);
    nvme::QueueBooks books{ids.data(), idle.data()};
    reset(queue.pair, books);
    cuda::check(cudaMemcpy(free_ids.data(), ids.data(), kDepth * 2, cudaMemcpyDefault), "writing ids");
    cuda::check(cudaMemcpy(in_flight.data(), idle.data(), kDepth * 8, cudaMemcpyDefault), "writing books");
    queue.books = {free_ids.as<uint16_t>(), in_flight.as<nvme::InFlight>()};
    queue.places = layout.place(0);
    queue.place_bytes = kPage;
    queue.block_bytes = drive.info().block_bytes;
    queue.blocks = drive.info().blocks;
  }

  nvme::QueueMemory layout;
  AlignedBuffer memory;
  cuda::Registration locked;
  std::unique_ptr<DriveMemory> shared;
  std::unique_ptr<DrivePair> added;
  cuda::DeviceMemory free_ids, in_flight;
  cuda::NvmeQueue queue;
};

void test_rows(Drive& drive, const std::vector<std::byte>& image) {
  const GpuBells bells(drive);
  const GpuPair first(drive, bells), second(drive, bells);
  const cuda::DeviceMemory queues(kPairs * sizeof(cuda::NvmeQueue));
  const cuda::NvmeQueue pairs[kPairs] = {first.queue, second.queue};
  cuda::check(cudaMemcpy(queues.data(), pairs, sizeof pairs, cudaMemcpyDefault), "writing queues");
  const cuda::PinnedMemory abort(4), pages(kRows * 8), offsets(kRows * 4), failures(kRows * 4), out(kRows * kRowBytes);
  *abort.as<uint32_t>() = 0;
  for (uint32_t i = 0; i < kRows; ++i) {
    pages.as<uint64_t>()[i] = i * 7 % (image.size() / kPage);
    offsets.as<uint32_t>()[i] = i * 8;
  }
  const cuda::GpuStream stream;
  cuda::read_rows_in_kernel(
      {.queues = queues.as<cuda::NvmeQueue>(),
       .images = 1,
       .per_image = kPairs,
       .place_bytes = kPage,
       .block_bytes = drive.info().block_bytes,
       .patience = 30'000'000'000,
       .abort = abort.as<uint32_t>()},
      {pages.as<uint64_t>(), offsets.as<uint32_t>(), kRows, kRowBytes, kPage, out.data(), failures.as<uint32_t>()},
      stream.get());
  stream.synchronize();
  for (uint32_t i = 0; i < kRows; ++i) {
    CHECK(failures.as<uint32_t>()[i] == 0);
    const std::byte* const expected = &image[i * 7 % (image.size() / kPage) * kPage + i * 8];
    CHECK(std::memcmp(out.data() + size_t{i} * kRowBytes, expected, kRowBytes) == 0);
  }
}

/// A GPU has the registers of a drive once, until they are taken back.
void test_registered(Drive& drive) {
  const auto bells = std::make_unique<GpuBells>(drive);
  try {
    const GpuBells again(drive);
    CHECK(false);
  } catch (const cuda::CudaError& error) {
    CHECK(std::string(error.what()).find("giving a GPU the registers of a device") != std::string::npos);
  }
}

}  // namespace

int main() {
  if (test::no_device("test_bam_gpu")) return test::kSkipped;
  const auto image = numbered(1 << 20);
  EmulatedDrive emulated(image, 512, {});
  const auto drive = Drive::over(emulated.registers(), "emulated", kPairs);
  test_registered(*drive);
  test_rows(*drive, image);
  CHECK(emulated.reads() > 0 && static_cast<uint32_t>(emulated.reads()) <= kRows);
}
