// Kernels that submit to drives whose registers are emulated: waves of an engine, and the warps of page_rows.hpp.
#include <chrono>
#include <cstring>
#include <iostream>
#include <memory>
#include <string>
#include <tiering/bam/engine.hpp>
#include <tiering/cuda/check.hpp>
#include <tiering/cuda/gpu_bells.hpp>
#include <tiering/cuda/memory.hpp>
#include <tiering/cuda/nvme_engine.hpp>
#include <tiering/cuda/nvme_reads.hpp>
#include <tiering/cuda/page_rows.hpp>
#include <vector>

#include "../cuda/device.hpp"
#include "check.hpp"
#include "emulated_drive.hpp"
#include "images.hpp"

using namespace tiering;
using namespace tiering::bam;

namespace {

constexpr uint32_t kPage = 4096, kRows = 300, kRowBytes = 96;

/// Two drives of different blocks, and what they hold.
struct TwoDrives {
  explicit TwoDrives(const EmulatedDrive::Flaws& flaws = {}, uint32_t pairs = 4)
      : first(numbered(1 << 20)),
        second(numbered((1 << 20) + 4096)),
        one(first, 512, flaws),
        other(second, 4096, flaws),
        images({&first, &second}) {
    for (EmulatedDrive* drive : {&one, &other})
      drives.push_back(Drive::over(drive->registers(), "emulated", pairs, EmulatedDrive::kFlipped));
  }
  std::unique_ptr<ReadEngine> engine(const EngineOptions& options,
                                     std::chrono::nanoseconds patience = nvme::kPatience) const {
    return cuda::make_gpu_nvme_engine(drive_server(images.set, options, drives), images.set, options, patience);
  }

  std::vector<std::byte> first, second;
  EmulatedDrive one, other;
  DriveImages images;
  Drives drives;
};

/// Batches of an engine for all images, and of two side by side, one for each.
void test_engine() {
  TwoDrives both;
  {
    Comparison sink(both.images, 1000, 7);
    const auto engine = both.engine({.depth = 12, .max_read = 65536});
    CHECK(std::string(engine->name()) == "bam-gpu");
    for (int batch = 1; batch <= 2; ++batch) {
      engine->start(sink.reads, sink);
      engine->finish();
      CHECK(sink.arrived == size_t{1000} * batch && both.one.reads() + both.other.reads() == 1000 * batch);
    }
    CHECK(both.one.queues() == 3 && both.other.queues() == 3);
    std::vector<std::unique_ptr<ReadEngine>> alone;
    for (int image = 0; image < 2; ++image) {
      alone.push_back(both.engine({.depth = 4, .max_read = 8192, .only_image = image}));
      Comparison part(both.images, 200, 2, image);
      alone.back()->start(part.reads, part);
      alone.back()->finish();
      CHECK(part.arrived == 200);
    }
    CHECK(both.one.queues() == 4 && both.other.queues() == 4);
    // No more than the drive has.
    const auto refused = both.engine({.depth = 16, .max_read = 4096});
    refused->start(sink.reads, sink);
    check_refused("pairs: expected at most 4, which is what emulated has", [&] { refused->finish(); });
  }
  CHECK(both.one.queues() == 0 && both.other.queues() == 0);
  check_refused("drives: expected one for each of 2 images, found 0", [&] { drive_server(both.images.set, {}, {}); });
}

/// A read that fails says so, in words that name what was read; the engine goes on.
void test_failing() {
  TwoDrives both({.fails_reads = true});
  const auto engine = both.engine({.depth = 8, .max_read = 4096});
  Comparison sink(both.images, 2, 1);
  sink.reads[0] = {4096, 4096, 4096, 0, nullptr};
  engine->start(sink.reads, sink);
  check_failed(EIO, "image 0: reading 4096 bytes at byte 4096: NVMe status 0x281", [&] { engine->finish(); });
  CHECK(sink.arrived == 1);
  sink.reads.erase(sink.reads.begin());
  engine->start(sink.reads, sink);
  engine->finish();
  CHECK(sink.arrived == 2);
}

/// A drive that falls silent in the middle: an error that says so, soon, and again for the next batch; the other drive
/// and the GPU go on.
void test_silent() {
  TwoDrives both;
  Comparison sink(both.images, 100, 4);
  const auto engine = both.engine({.depth = 8, .max_read = 65536}, std::chrono::milliseconds(200));
  engine->start(sink.reads, sink);
  engine->finish();
  CHECK(sink.arrived == 100);
  both.one.fall_silent();
  engine->start(sink.reads, sink);
  check_failed(ETIMEDOUT, "image 0: reads have not come back in 200 ms", [&] { engine->finish(); });
  engine->start(sink.reads, sink);
  check_failed(ETIMEDOUT, "emulated: cannot make a completion queue: Connection timed out", [&] { engine->finish(); });
  const auto other = both.engine({.depth = 8, .max_read = 65536, .only_image = 1});
  Comparison part(both.images, 100, 4, 1);
  other->start(part.reads, part);
  other->finish();
  CHECK(part.arrived == 100);
}

/// Commands lie in memory of the GPU, and nothing else of a pair: a drive's completions come to the host, as its data
/// do.
void check_places(const cuda::NvmeReads& reads) {
  cuda::NvmeQueue queue;
  cuda::check(cudaMemcpy(&queue, reads.queues().queues, sizeof queue, cudaMemcpyDefault), "looking at a queue");
  const auto kind = [](const void* place) {
    cudaPointerAttributes found{};
    cuda::check(cudaPointerGetAttributes(&found, place), "looking at memory");
    return found.type;
  };
  CHECK(kind(queue.pair.commands) == cudaMemoryTypeDevice && kind(queue.pair.completions) == cudaMemoryTypeHost);
  CHECK(kind(queue.places) == cudaMemoryTypeHost && kind(queue.pair.submit_bell) == cudaMemoryTypeHost);
}

/// Warps that read pages in the middle of a kernel.
void test_rows() {
  TwoDrives both;
  cuda::NvmeReads reads(drive_server(both.images.set, {.max_read = kPage}, both.drives), both.images.set,
                        {.per_image = 2, .in_flight = 15, .max_read = kPage, .only_image = 0});
  check_places(reads);
  const cuda::PinnedMemory pages(kRows * 8), offsets(kRows * 4), failures(kRows * 4), out(kRows * kRowBytes);
  for (uint32_t i = 0; i < kRows; ++i) {
    pages.as<uint64_t>()[i] = i * 7 % (both.first.size() / kPage);
    offsets.as<uint32_t>()[i] = i * 8;
  }
  cuda::read_rows_in_kernel(
      reads.queues(),
      {pages.as<uint64_t>(), offsets.as<uint32_t>(), kRows, kRowBytes, kPage, out.data(), failures.as<uint32_t>()},
      reads.stream());
  cuda::check(cudaStreamSynchronize(reads.stream()), "reading rows");
  for (uint32_t i = 0; i < kRows; ++i) {
    CHECK(failures.as<uint32_t>()[i] == 0);
    const std::byte* const expected = &both.first[i * 7 % (both.first.size() / kPage) * kPage + i * 8];
    CHECK(std::memcmp(out.data() + size_t{i} * kRowBytes, expected, kRowBytes) == 0);
  }
  CHECK(both.one.reads() > 0 && static_cast<uint32_t>(both.one.reads()) <= kRows && both.other.reads() == 0);
}

/// A GPU has the registers of a drive once, until the last who rings gives them back.
void test_registered() {
  TwoDrives both;
  const auto registers = both.one.registers();
  const auto refused = [&] { const cuda::Registration other(registers.data(), kPage, true); };
  {
    auto first = std::make_unique<cuda::GpuBells>(registers);
    const cuda::GpuBells second(registers);
    first.reset();
    try {
      refused();
      CHECK(false);
    } catch (const cuda::CudaError& error) {
      CHECK(std::string(error.what()).find("giving a GPU the registers of a device") != std::string::npos);
    }
  }
  refused();  // nobody has them any more
}

}  // namespace

int main() {
  if (test::no_device("test_bam_gpu")) return test::kSkipped;
  test_engine();
  test_failing();
  test_silent();
  test_rows();
  test_registered();
}
