// What serves the queues of one image: a controller made of software (soft_controller.hpp), or a drive (ext/bam).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tiering/io/read_engine.hpp>
#include <tiering/nvme/queue_memory.hpp>

namespace tiering::nvme {

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

/// A pair of queues that is served.
struct ServedPair {
  std::unique_ptr<Controller> controller;
  QueuePair pair;
  /// Describes the first bytes of a landing place for the controller.
  std::function<Prps(uint32_t place, uint32_t bytes)> prps;
};

/// Begins to serve a pair for image number `image` of a set: its entries, zeros, lie in `queues` (all of it) with `depth`
/// of each, and its reads go to `landing`, which lies in `places`.
struct PairRequest {
  uint32_t image;
  const ImageFile& file;
  uint32_t depth;
  std::shared_ptr<SharedMemory> queues;
  Landing landing;
  std::shared_ptr<SharedMemory> places;
};
using PairServer = std::function<ServedPair(const PairRequest&)>;

}  // namespace tiering::nvme
