#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <list>
#include <mutex>
#include <tiering/bam/engine.hpp>
#include <tiering/errors.hpp>
#include <tiering/nvme/host_engine.hpp>
#include <utility>

namespace tiering::bam {
namespace {

/// Commands of a queue whose entries fit one page: pages of the host's memory need not follow each other for a drive.
constexpr int kMostOnPage = nvme::kPageBytes / sizeof(nvme::Command) - 1;

/// What pairs need while a drive serves them.
struct Held {
  const DriveMemory& of(const void* place) const {
    return **std::find_if(known.begin(), known.end(), [&](const auto& memory) { return memory->holds(place, 1); });
  }

  std::shared_ptr<Drive> drive;
  std::vector<nvme::HeldMemory> memory;
  std::vector<std::unique_ptr<DriveMemory>> known;
  std::vector<std::unique_ptr<DrivePair>> pairs;
};

void keep(std::shared_ptr<Held> held) noexcept {
  static auto* const mutex = new std::mutex;
  static auto* const kept = new std::list<std::shared_ptr<Held>>;
  const std::lock_guard lock(*mutex);
  kept->push_back(std::move(held));
}

class DriveController final : public nvme::Controller {
 public:
  explicit DriveController(std::shared_ptr<Held> held) : held_(std::move(held)) {}
  ~DriveController() override {
    // A drive that does not answer may still write: its memory is kept for good.
    if (!stop({})) keep(std::move(held_));
  }
  uint32_t block_bytes() const noexcept override { return held_->drive->info().block_bytes; }
  uint64_t blocks() const noexcept override { return held_->drive->info().blocks; }
  bool stop(std::chrono::nanoseconds) noexcept override {
    running_ = false;
    bool gone = true;
    for (const auto& pair : held_->pairs) gone &= pair->remove();
    return gone;
  }
  std::string trouble() const override { return {}; }
  bool running() const noexcept override { return running_; }

 private:
  std::shared_ptr<Held> held_;
  std::atomic<bool> running_ = true;
};

nvme::ServedPairs serve(std::shared_ptr<Drive> drive, const nvme::PairsRequest& asked) {
  drive->expect_room(static_cast<uint64_t>(asked.file.bytes()), nvme::kPageBytes);
  auto held = std::make_shared<Held>();
  held->drive = std::move(drive);
  held->memory = asked.memory;
  for (const auto& memory : asked.memory) held->known.push_back(held->drive->share(memory.bytes));
  std::byte* commands = asked.commands.bytes.data();
  if (commands != nullptr) {
    held->memory.push_back(asked.commands);
    held->known.push_back(held->drive->share_gpu(asked.commands.bytes));
  }
  auto controller = std::make_unique<DriveController>(held);
  std::vector<nvme::QueuePair> pairs;
  for (const nvme::QueueMemory& where : asked.pairs) {
    nvme::QueuePair entries = where.pair();
    if (commands != nullptr) {
      entries.commands = reinterpret_cast<nvme::Command*>(commands);
      commands += where.commands_bytes();
    }
    held->pairs.push_back(held->drive->add_pair(entries, held->of(entries.commands), held->of(entries.completions)));
    pairs.push_back(held->pairs.back()->queues());
  }
  const auto describe = [held](const nvme::Landing& landing, uint32_t place, uint32_t bytes) {
    const DriveMemory& memory = held->of(landing.begin);
    return landing.prps(place, bytes, [&](const std::byte* page) { return memory.address(page); });
  };
  return {std::move(controller), std::move(pairs), held->drive->registers(), describe};
}

/// A fork would leave the parent with copies of pages that it writes to, while the drive goes on with the pages.
void keep_from_forks(const nvme::HeldMemory& memory) {
  if (madvise(memory.bytes.data(), memory.bytes.size(), MADV_DONTFORK) != 0)
    throw IoError(errno, "memory that a drive uses cannot be kept from forks");
}

}  // namespace

nvme::PairServer drive_server(const ImageSet& images, const EngineOptions& options, Drives drives) {
  TIERING_EXPECT(drives.size() == images.images.size(), "drives: expected one for each of " +
                                                            std::to_string(images.images.size()) + " images, found " +
                                                            std::to_string(drives.size()));
  for (const auto& drive : drives)
    TIERING_EXPECT(options.max_read <= drive->info().most_read,
                   "max_read: expected at most " + std::to_string(drive->info().most_read) +
                       " bytes, the longest read of a drive, found " + std::to_string(options.max_read));
  return {"bam", true,
          [drives = std::move(drives)](const nvme::PairsRequest& asked) { return serve(drives[asked.image], asked); }};
}

std::unique_ptr<ReadEngine> make_bam_engine(const ImageSet& images, const EngineOptions& options, Drives drives,
                                            std::chrono::nanoseconds patience) {
  nvme::PairServer server = drive_server(images, options, std::move(drives));
  server.serve = [serve = std::move(server.serve)](const nvme::PairsRequest& asked) {
    for (const auto& memory : asked.memory) keep_from_forks(memory);
    return serve(asked);
  };
  EngineOptions fitting = options;
  fitting.depth = std::min(options.depth, kMostOnPage);
  return nvme::make_nvme_engine(std::move(server), images, fitting, patience);
}

}  // namespace tiering::bam
