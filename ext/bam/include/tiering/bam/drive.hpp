// A real NVMe drive, brought up by libnvm of BaM: queues whose commands are written and whose doorbells are rung by
// ourselves (tiering/nvme/queue.hpp).
//
// Not run on hardware: it is tested on a drive whose registers are emulated (tests/bam).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <tiering/nvme/controller.hpp>
#include <tiering/nvme/queue.hpp>
#include <vector>

namespace tiering::bam {

/// What a drive says of itself and of its first namespace.
struct DriveInfo {
  std::string model, serial;
  uint64_t blocks = 0;        ///< logical blocks of the namespace
  uint32_t block_bytes = 0;   ///< of a logical block
  uint32_t most_entries = 0;  ///< of a queue
  uint32_t most_read = 0;     ///< bytes of the longest read
  uint32_t most_pairs = 0;    ///< pairs of queues that it has for us
};

/// Memory that a drive knows. Gone from the drive when it is destroyed, which no command may outlive.
class DriveMemory {
 public:
  virtual ~DriveMemory() = default;
  virtual std::span<const std::byte> bytes() const noexcept = 0;
  /// The drive's address of each page of nvme::kPageBytes.
  virtual std::span<const uint64_t> pages() const noexcept = 0;

  bool holds(const void* begin, size_t size) const noexcept {
    const auto at = reinterpret_cast<uintptr_t>(begin), from = reinterpret_cast<uintptr_t>(bytes().data());
    return at >= from && at - from <= bytes().size() && size <= bytes().size() - (at - from);
  }
  /// Number of the page that holds `place`.
  size_t page_of(const void* place) const noexcept {
    return static_cast<size_t>(static_cast<const std::byte*>(place) - bytes().data()) / nvme::kPageBytes;
  }
  /// The drive's address of the page that begins at `page`.
  uint64_t address(const std::byte* page) const noexcept { return pages()[page_of(page)]; }
};

/// A pair of queues of a drive. When it is destroyed the drive forgets it, and writes to its memory no more.
class DrivePair {
 public:
  virtual ~DrivePair() = default;
  virtual const nvme::QueuePair& queues() const noexcept = 0;
  /// Has the drive forget the pair, with what is in flight. False: it does not answer.
  virtual bool remove() noexcept = 0;
};

/// A drive that is ours alone: no file system lies on it, and the kernel's own driver does not hold it. Nothing but
/// reads is ever asked of its namespace. Memory and pairs may be asked for by any thread, and must not outlive it. In a
/// forked child it is the parent's: a copy that is dropped there leaves the drive and what it knows alone.
///
/// libnvm waits as long as the drive says that it may take (CAP.TO: 0.5 to 127.5 s; sleeps of a millisecond are
/// counted, not the clock): once for each command of its own, of which the first that is not answered is the last. A
/// drive is switched off when it ends, or could not be made; where it stays on, memory of its admin queues is kept for
/// good.
class Drive {
 public:
  /// The drive that BaM's module shows as `path`, such as /dev/libnvm0: resets it and takes it over. `pairs`: pairs of
  /// queues wanted. Throws IoError.
  static std::unique_ptr<Drive> open(const std::string& path, uint32_t pairs);
  /// An emulated drive, called `name`, whose registers lie at `registers`. It knows memory by its addresses in this
  /// process with the bits of `flipped` the other way, so that pages may come in another order, as they do on a bus.
  static std::unique_ptr<Drive> over(std::span<std::byte> registers, const std::string& name, uint32_t pairs,
                                     uint64_t flipped = 0);

  virtual ~Drive() = default;
  virtual const DriveInfo& info() const noexcept = 0;
  /// The drive's registers, doorbells among them; see tiering/cuda/gpu_bells.hpp.
  virtual std::span<std::byte> registers() const noexcept = 0;
  /// Lets the drive use whole pages of memory of the host, which a fork must not make the child's (AlignedBuffer,
  /// kept_from_forks). Throws IoError, InputError for other than whole pages.
  virtual std::unique_ptr<DriveMemory> share(std::span<std::byte> memory) = 0;
  /// The same with memory of a GPU, whole pages of nvme::kGpuPageBytes, as the NVIDIA driver pins it; an emulated drive
  /// knows memory of a simulated GPU.
  virtual std::unique_ptr<DriveMemory> share_gpu(std::span<std::byte> memory) = 0;
  /// Makes a pair of queues, whose entries (`depth` of each, zeros) lie in memory of this drive from a page's begin on,
  /// and whose doorbells are registers of the drive. Queues of more than a page want memory whose pages follow each
  /// other for the drive, too. Throws IoError with the status that the drive gave, InputError for a depth or memory
  /// that it does not have.
  virtual std::unique_ptr<DrivePair> add_pair(const nvme::QueuePair& entries, const DriveMemory& commands,
                                              const DriveMemory& completions) = 0;
  /// Throws InputError unless the namespace has so many bytes and its blocks divide pages of `page_bytes`.
  void expect_room(uint64_t bytes, uint32_t page_bytes) const;

 protected:
  std::string name_;
};

}  // namespace tiering::bam
