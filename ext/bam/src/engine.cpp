#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <tiering/bam/engine.hpp>
#include <tiering/errors.hpp>
#include <utility>

namespace tiering::bam {
namespace {

/// What a pair needs while a drive serves it.
struct Held {
  std::shared_ptr<Drive> drive;
  std::shared_ptr<nvme::SharedMemory> queues, places;
  std::unique_ptr<DriveMemory> queues_known, places_known;
  std::unique_ptr<DrivePair> pair;
};

class DriveController final : public nvme::Controller {
 public:
  explicit DriveController(std::shared_ptr<Held> held) : held_(std::move(held)) {}
  ~DriveController() override {
    // A drive that does not answer may still write: its memory is kept for good.
    if (!stop({})) static_cast<void>(new std::shared_ptr<Held>(std::move(held_)));
  }
  uint32_t block_bytes() const noexcept override { return held_->drive->info().block_bytes; }
  uint64_t blocks() const noexcept override { return held_->drive->info().blocks; }
  bool stop(std::chrono::nanoseconds) noexcept override {
    running_ = false;
    return held_->pair->remove();
  }
  std::string trouble() const override { return {}; }
  bool running() const noexcept override { return running_; }

 private:
  std::shared_ptr<Held> held_;
  std::atomic<bool> running_ = true;
};

nvme::ServedPair serve(std::shared_ptr<Drive> drive, const nvme::PairRequest& asked) {
  drive->expect_room(static_cast<uint64_t>(asked.file.bytes()), nvme::kPageBytes);
  auto held = std::make_shared<Held>();
  held->drive = std::move(drive);
  held->queues = asked.queues;
  held->places = asked.places;
  // A fork would leave the parent with copies of pages that it writes to, while the drive goes on with the pages.
  for (const auto& memory : {asked.queues, asked.places})
    if (madvise(memory->buffer.data(), memory->size, MADV_DONTFORK) != 0)
      throw IoError(errno, "memory that a drive uses cannot be kept from forks");
  held->queues_known = held->drive->share({asked.queues->buffer.data(), asked.queues->size});
  held->places_known = held->drive->share({asked.places->buffer.data(), asked.places->size});
  held->pair = held->drive->add_pair({asked.queues->buffer.data(), asked.depth, 0}, *held->queues_known);
  const auto describe = [held, landing = asked.landing](uint32_t place, uint32_t bytes) {
    const std::byte* const begin = held->places->buffer.data();
    auto* const list = reinterpret_cast<uint64_t*>(landing.begin + size_t{place} * nvme::kPageBytes);
    return held->places_known->prps(static_cast<size_t>(landing.place(place) - begin), bytes, list, place);
  };
  return {std::make_unique<DriveController>(held), held->pair->queues(), describe};
}

}  // namespace

std::unique_ptr<ReadEngine> make_bam_engine(const ImageSet& images, const EngineOptions& options,
                                            std::vector<std::shared_ptr<Drive>> drives,
                                            std::chrono::nanoseconds patience) {
  TIERING_EXPECT(drives.size() == images.images.size(), "drives: expected one for each of " +
                                                            std::to_string(images.images.size()) + " images, found " +
                                                            std::to_string(drives.size()));
  for (const auto& drive : drives)
    TIERING_EXPECT(options.max_read <= drive->info().most_read,
                   "max_read: expected at most " + std::to_string(drive->info().most_read) +
                       " bytes, the longest read of a drive, found " + std::to_string(options.max_read));
  return nvme::make_nvme_engine(
      "bam", images, options,
      [drives = std::move(drives)](const nvme::PairRequest& asked) { return serve(drives[asked.image], asked); },
      patience);
}

}  // namespace tiering::bam
