#include <bit>
#include <tiering/cuda/drives.hpp>

namespace tiering::cuda {
namespace {

constexpr int64_t kChunk = QueueShape::kChunk;
static_assert(kChunk == static_cast<int64_t>(DriveBus::kDevicePage));

}  // namespace

DriveWrites drive_writes(int device) {
  const auto ask = [device](cudaDeviceAttr attribute) {
    int value = 0;
    check(cudaDeviceGetAttribute(&value, attribute, device), "checking GPUDirect RDMA");
    return value;
  };
  if (ask(cudaDevAttrGPUDirectRDMASupported) == 0) return DriveWrites::none;
  if (ask(cudaDevAttrGPUDirectRDMAWritesOrdering) >= cudaGPUDirectRDMAWritesOrderingOwner) return DriveWrites::ordered;
  const bool flushes = (ask(cudaDevAttrGPUDirectRDMAFlushWritesOptions) & cudaFlushGPUDirectRDMAWritesOptionHost) != 0;
  return flushes ? DriveWrites::flushed : DriveWrites::none;
}

Drives::Drives(std::vector<std::unique_ptr<Drive>> drives, int64_t page_bytes, const std::vector<int64_t>& image_bytes,
               double patience_seconds, uint32_t pairs)
    : drives_(std::move(drives)), page_bytes_(page_bytes) {
  int device = 0;
  check(cudaGetDevice(&device), "finding the device");
  const DriveWrites writes = drive_writes(device);
  TIERING_EXPECT(
      writes != DriveWrites::none,
      "this GPU does not see what drives write to its memory (GPUDirect RDMA): use another engine, or a data "
      "center GPU");
  TIERING_EXPECT(!drives_.empty() && drives_.size() == image_bytes.size(), "expected a drive for each of ",
                 image_bytes.size(), " images, found ", drives_.size());
  for (size_t d = 0; d < drives_.size(); ++d) {
    const auto& drive = drives_[d];
    drive->expect_image(page_bytes, image_bytes[d]);
    TIERING_EXPECT(drive->facts().block_bytes == drives_[0]->facts().block_bytes, drive->name(),
                   ": expected blocks of the size of the first drive's, ", drives_[0]->facts().block_bytes,
                   " bytes, found ", drive->facts().block_bytes, "; format them alike");
  }
  const QueueShape shape{static_cast<uint32_t>(drives_.size()), kRounds * pairs, kDepth, page_bytes};
  words_memory_ = PinnedMemory(kRounds * sizeof(Words) + sizeof(uint32_t));
  stop_ = new (words_memory_.as<Words>() + kRounds) uint32_t{0};
  for (uint32_t r = 0; r < kRounds; ++r) {
    Round& round = rounds_[r];
    round.words = new (words_memory_.as<Words>() + r) Words;
    round.set = {.num_drives = shape.drives, .pairs = pairs, .depth = kDepth};
    round.set.block_bits = std::countr_zero(drives_[0]->facts().block_bytes);
    round.set.patience = static_cast<uint64_t>(patience_seconds * 1e9);
    round.set.stop = stop_;
    round.set.failure = &round.words->failure;
    round.set.rest = writes == DriveWrites::flushed ? &round.words->rest : nullptr;
  }
  try {
    make_queues(shape);
  } catch (...) {
    leave();
    throw;
  }
}

void Drives::make_queues(const QueueShape& shape) {
  const size_t tail = shape.queues() * sizeof(DriveQueue), cursors = kRounds * drives_.size() * sizeof(uint32_t);
  memory_ = DeviceMemory(shape.bytes() + kChunk + static_cast<int64_t>(tail + cursors));
  const auto unaligned = reinterpret_cast<uintptr_t>(memory_.data());
  std::byte* const begin = memory_.data() + (kChunk - unaligned % kChunk) % kChunk;
  // All drives know memory by the same addresses: no IOMMU translates.
  const auto addresses = drives_[0]->bus().map(begin, static_cast<size_t>(shape.bytes()), true);
  mapped_ = begin;
  check(cudaMemsetAsync(begin, 0, static_cast<size_t>(shape.bytes()), nullptr), "clearing queues");
  std::vector<std::byte*> registers;
  for (const auto& drive : drives_) {
    doorbells_.emplace_back(drive->bus().registers(), static_cast<int64_t>(DriveBus::kRegisterBytes), true);
    registers.push_back(doorbells_.back().device_address());
  }
  const auto put = [](std::byte* to, const void* from, size_t bytes) {
    check(cudaMemcpy(to, from, bytes, cudaMemcpyDefault), "writing queues");
  };
  const auto queues = tiering::make_queues(drives_, shape, begin, addresses, registers, put);
  std::byte* const end = begin + shape.bytes();
  put(end, queues.data(), tail);
  // Kernels run on streams that do not wait for the default stream, where copies from pageable memory may still be under way.
  check(cudaStreamSynchronize(nullptr), "writing queues");
  for (uint32_t r = 0; r < kRounds; ++r) {
    rounds_[r].set.queues = reinterpret_cast<DriveQueue*>(end) + r * queues.size() / kRounds;
    rounds_[r].set.cursors = reinterpret_cast<uint32_t*>(end + tail) + r * drives_.size();
  }
}

Drives::~Drives() { leave(); }

void Drives::leave() noexcept {
  bool stopped = true;
  for (const auto& drive : drives_) stopped = drive->stop() && stopped;
  if (stopped && mapped_ != nullptr) drives_[0]->bus().unmap(mapped_);
  if (!stopped) new DeviceMemory(std::move(memory_));  // never given back
}

void Drives::read(const DriveRowList& list, cudaStream_t stream) {
  Round& round = rounds_[turn_++ % kRounds];
  const std::lock_guard lock(round.mutex);
  TIERING_EXPECT(!given_up_, "reading from the drives stopped after a failure; open the layout again");
  DriveRowList there = list;
  there.geometry.page_bytes = page_bytes_;
  there.geometry.num_images = round.set.num_drives;
  run(round, there, stream);
  const auto failure = std::exchange(round.words->failure, DriveFailure::kNone);
  if (failure == DriveFailure::kNone) return;
  if (failure < DriveFailure::refused(0, 0)) given_up_ = true;
  throw IoError(EIO, describe(failure));
}

void Drives::run(Round& round, const DriveRowList& list, cudaStream_t stream) const {
  const auto finish = [&] {
    round.done.record(stream);
    round.done.wait();
  };
  Words& words = *round.words;
  check(cudaMemsetAsync(round.set.cursors, 0, drives_.size() * sizeof(uint32_t), stream), "clearing cursors");
  do {
    words.rest = ~0ULL;
    read_drive_rows(round.set, list, stream);
    finish();
    if (round.set.rest == nullptr) return;
    check(cudaDeviceFlushGPUDirectRDMAWrites(cudaFlushGPUDirectRDMAWritesTargetCurrentDevice,
                                             cudaFlushGPUDirectRDMAWritesToOwner),
          "flushing what drives wrote");
    copy_drive_rows(round.set, list, stream);
    finish();
  } while (words.rest == 0 && words.failure >= DriveFailure::refused(0, 0));
}

void Drives::stop() { std::atomic_ref(*stop_).store(1, std::memory_order_release); }

std::string Drives::describe(unsigned long long failure) const {
  if (failure < DriveFailure::refused(0, 0)) {
    const std::string& drive = drives_[(failure >> 4) % drives_.size()]->name();
    switch (failure & 15) {
      case DriveFailure::kStopped:
        return drive + ": reading was stopped";
      case DriveFailure::kStrange:
        return drive + ": the drive answered a read that was not requested; stop other processes that use the drive";
      default:
        return drive + ": the drive did not answer for " + std::to_string(rounds_[0].set.patience / 1'000'000'000) +
               " s";
    }
  }
  const auto page = static_cast<int64_t>((failure >> 16) - 1), drives = static_cast<int64_t>(drives_.size());
  return drives_[page % drives]->name() + ": reading " + std::to_string(page_bytes_) + " bytes at byte " +
         std::to_string(page / drives * page_bytes_) + ": the drive refused, with status " +
         std::to_string(failure & 0xffff);
}

}  // namespace tiering::cuda
