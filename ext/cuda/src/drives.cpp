#include <tiering/cuda/drives.hpp>

namespace tiering::cuda {
namespace {

constexpr int64_t kChunk = QueueShape::kChunk;
static_assert(kChunk == static_cast<int64_t>(DriveBus::kDevicePage));

/// Whether memory of the current device can be written to by drives, in the order of their writes.
void expect_direct_access() {
  int device = 0, supported = 0, ordering = 0;
  check(cudaGetDevice(&device), "finding the device");
  check(cudaDeviceGetAttribute(&supported, cudaDevAttrGPUDirectRDMASupported, device), "asking for GPUDirect");
  check(cudaDeviceGetAttribute(&ordering, cudaDevAttrGPUDirectRDMAWritesOrdering, device),
        "asking for GPUDirect's order");
  TIERING_EXPECT(supported != 0, "this GPU's memory cannot be read and written by drives (GPUDirect RDMA)");
  TIERING_EXPECT(ordering >= cudaGPUDirectRDMAWritesOrderingOwner,
                 "this GPU does not see what drives write to its memory in the order in which they do (GPUDirect RDMA "
                 "writes ordering ",
                 ordering, ", expected 100 or more)");
}

}  // namespace

Drives::Drives(std::vector<std::unique_ptr<Drive>> drives, int64_t page_bytes, const std::vector<int64_t>& image_bytes,
               double patience_seconds)
    : drives_(std::move(drives)), page_bytes_(page_bytes) {
  expect_direct_access();
  TIERING_EXPECT(!drives_.empty() && drives_.size() == image_bytes.size(), "expected a drive for each of ",
                 image_bytes.size(), " images, found ", drives_.size());
  for (size_t d = 0; d < drives_.size(); ++d) {
    const auto& drive = drives_[d];
    drive->expect_image(page_bytes, image_bytes[d]);
    TIERING_EXPECT(drive->facts().block_bytes == drives_[0]->facts().block_bytes, drive->name(),
                   ": expected blocks of the size of the first drive's, ", drives_[0]->facts().block_bytes,
                   " bytes, found ", drive->facts().block_bytes, "; format them alike");
  }
  words_memory_ = PinnedMemory(sizeof(Words));
  words_ = new (words_memory_.data()) Words{DriveFailure::kNone, 0};
  const QueueShape shape{static_cast<uint32_t>(drives_.size()), kPairs, kDepth, page_bytes};
  set_.num_drives = shape.drives;
  set_.pairs = shape.pairs;
  set_.depth = shape.depth;
  for (uint32_t block = drives_[0]->facts().block_bytes; block > uint32_t{1} << set_.block_bits;) ++set_.block_bits;
  set_.patience = static_cast<uint64_t>(patience_seconds * 1e9);
  set_.stop = &words_->stop;
  set_.failure = &words_->failure;
  try {
    make_queues(shape);
  } catch (...) {
    leave();
    throw;
  }
}

void Drives::make_queues(const QueueShape& shape) {
  const size_t tail = shape.queues() * sizeof(DriveQueue);
  memory_ = DeviceMemory(shape.bytes() + kChunk + static_cast<int64_t>(tail));
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
  set_.queues = reinterpret_cast<DriveQueue*>(begin + shape.bytes());
  put(begin + shape.bytes(), queues.data(), tail);
}

Drives::~Drives() { leave(); }

void Drives::leave() noexcept {
  bool stopped = true;
  for (const auto& drive : drives_) stopped = drive->stop() && stopped;
  if (stopped && mapped_ != nullptr) drives_[0]->bus().unmap(mapped_);
  if (!stopped) new DeviceMemory(std::move(memory_));  // never given back
}

void Drives::read(const DriveRowList& list, cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  TIERING_EXPECT(!given_up_, "the drives were given up after a failure; open the layout again");
  DriveRowList there = list;
  there.geometry.page_bytes = page_bytes_;
  there.geometry.num_images = set_.num_drives;
  read_drive_rows(set_, there, stream);
  done_.record(stream);
  done_.wait();
  const auto failure = std::exchange(words_->failure, DriveFailure::kNone);
  if (failure == DriveFailure::kNone) return;
  given_up_ = given_up_ || failure < DriveFailure::refused(0, 0);
  throw IoError(EIO, describe(failure));
}

void Drives::stop() { std::atomic_ref(words_->stop).store(1, std::memory_order_release); }

std::string Drives::describe(unsigned long long failure) const {
  if (failure < DriveFailure::refused(0, 0)) {
    const std::string& drive = drives_[(failure >> 4) % drives_.size()]->name();
    switch (failure & 15) {
      case DriveFailure::kStopped:
        return drive + ": reading was stopped";
      case DriveFailure::kStrange:
        return drive + ": the drive answered what it was not asked; does another process use it?";
      default:
        return drive + ": the drive did not answer for " + std::to_string(set_.patience / 1'000'000'000) + " s";
    }
  }
  const auto page = static_cast<int64_t>((failure >> 16) - 1), drives = static_cast<int64_t>(drives_.size());
  return drives_[page % drives]->name() + ": reading " + std::to_string(page_bytes_) + " bytes at byte " +
         std::to_string(page / drives * page_bytes_) + ": the drive refused, with status " +
         std::to_string(failure & 0xffff);
}

}  // namespace tiering::cuda
