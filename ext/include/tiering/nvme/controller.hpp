// What serves the queues of one image: a controller made of software (soft_controller.hpp), or a drive (ext/bam). Who
// submits, a thread of the host or a GPU, asks for pairs of queues and need not know which.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <tiering/io/read_engine.hpp>
#include <tiering/nvme/queue_memory.hpp>
#include <utility>
#include <vector>

namespace tiering::nvme {

/// Nothing came back for so long: reads are given up. As long as Linux waits for a drive.
inline constexpr auto kPatience = std::chrono::seconds(30);

class Controller {
 public:
  virtual ~Controller() = default;
  /// Bytes of a logical block.
  virtual uint32_t block_bytes() const noexcept = 0;
  /// Logical blocks; bytes of the last that lie past the end of an image are 0.
  virtual uint64_t blocks() const noexcept = 0;
  /// Takes no more commands and waits until no read is under way: nothing lands after that. False: some read has not
  /// come back in time; what it lands in is kept for good.
  virtual bool stop(std::chrono::nanoseconds patience) noexcept = 0;
  /// What went wrong last, in words; empty: nothing.
  virtual std::string trouble() const = 0;
  /// False once it serves no more, be it by stop() or because of an error that it cannot go on after.
  virtual bool running() const noexcept = 0;
};

/// Memory of the host that queues or reads lie in, kept until all who use it have let go of it.
struct SharedMemory {
  explicit SharedMemory(size_t bytes, bool kept_from_forks = false) : buffer(bytes, kept_from_forks), size(bytes) {}
  AlignedBuffer buffer;
  size_t size;
};

/// Whole pages of memory, kept until all who use them have let go of the owner.
struct HeldMemory {
  HeldMemory() = default;
  HeldMemory(std::span<std::byte> bytes, std::shared_ptr<void> owner) : bytes(bytes), owner(std::move(owner)) {}
  HeldMemory(const std::shared_ptr<SharedMemory>& memory) : HeldMemory({memory->buffer.data(), memory->size}, memory) {}

  std::span<std::byte> bytes{};
  std::shared_ptr<void> owner{};
};

inline constexpr size_t kGpuPageBytes = 64 << 10;  ///< memory of a GPU is given to devices in pages of this

/// Pairs of queues that are wanted for image number `image` of a set.
struct PairsRequest {
  uint32_t image;
  const ImageFile& file;
  std::vector<QueueMemory> pairs;  ///< where the entries of each lie, zeros
  std::vector<HeldMemory> memory;  ///< of the host: what those lie in, and what reads land in
  /// Of a GPU, in pages of kGpuPageBytes: commands lie there, each pair's from a page of kPageBytes on; empty: in
  /// `pairs`.
  HeldMemory commands{};
};

/// Pairs of queues that are served.
struct ServedPairs {
  std::unique_ptr<Controller> controller;
  std::vector<QueuePair> pairs;
  std::span<std::byte> registers{};  ///< of a device, doorbells among them; empty: these lie in the memory of entries
  /// Describes the first bytes of a landing place, which lies in memory of the request, for the controller.
  std::function<Prps(const Landing& landing, uint32_t place, uint32_t bytes)> prps;
};

/// Serves the images of a set.
struct PairServer {
  const char* name = nullptr;  ///< of the engine whose reads it serves
  /// Whether a GPU has to have commands in memory of its own. Its writes to memory of the host may be overtaken by
  /// those to a device's doorbells.
  bool commands_on_gpu = false;
  std::function<ServedPairs(const PairsRequest&)> serve{};
};

/// Makes what serves an engine with these options.
using PairServerMaker = std::function<PairServer(const ImageSet& images, const EngineOptions& options)>;
/// What a capsule of Python that points to a PairServerMaker is called.
inline constexpr const char* kPairServerMakerName = "tiering.PairServerMaker";

}  // namespace tiering::nvme
