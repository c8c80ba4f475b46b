// One interface for everything that can read stripe files at random, and the table of engines.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <exception>
#include <memory>
#include <span>
#include <tiering/errors.hpp>
#include <tiering/io/image_set.hpp>

namespace tiering {

/// The kernel refuses a ring, at the start or in the middle of its work. Nothing is in flight any more.
class RingError : public IoError {
 public:
  using IoError::IoError;
};

/// One contiguous read of one image.
struct Read {
  int64_t offset;   ///< byte in the image; multiple of the set's offset alignment
  uint32_t bytes;   ///< bytes asked for; multiple of the offset alignment, at most EngineOptions::max_read
  uint32_t need;    ///< bytes that must arrive, <= bytes (the rest may lie past the end of the image)
  uint32_t image;   ///< index in the set
  std::byte* into;  ///< aligned target, or nullptr: the engine lends a buffer for the time of ready()
};

/// Receives finished reads.
class ReadSink {
 public:
  virtual ~ReadSink() = default;
  /// Called once per read that succeeded, in any order and possibly from several threads at once. `data` holds the
  /// read's first `need` bytes; it equals Read::into where that was given and the engine copies at all.
  virtual void ready(size_t index, const std::byte* data) noexcept = 0;
  /// Called when the engine has begun all reads it was given and could take more: reads that follow, whose indices go
  /// on where those before ended; none: there are no more for now. `wait`: nothing is in flight, so that the engine has
  /// nothing to do until there are more; none then ends the batch. The reads must live until the next call. By one
  /// thread at a time, while others may be in ready().
  virtual std::span<const Read> more([[maybe_unused]] bool wait) noexcept { return {}; }
};

struct EngineOptions {
  int depth = 128;               ///< reads in flight at most
  uint32_t max_read = 64 << 10;  ///< bytes of the longest read; size of a lent buffer
  bool kept_from_forks = false;  ///< forked children get no copy of lent buffers, and must not use the engine
};

/// Runs one batch of reads at a time, by slots. Not thread-safe: callers take turns. In a forked child it forgets the
/// batch of its parent, with whose reads it has nothing to do, and reads by itself. An engine is begin() and reap():
/// this class takes reads from the sink while slots are free, keeps the first error, after which nothing new is begun,
/// and waits for what is in flight. All of it runs on the caller's thread.
class ReadEngine {
 public:
  virtual ~ReadEngine() = default;
  virtual const char* name() const noexcept = 0;
  /// Tells the kernel once of memory that reads will land in, so that it need not look it up for every read.
  /// False where the engine has no use for that, or the limit of locked memory (`ulimit -l`) is too low; reads
  /// work all the same. The memory must outlive the engine; a second call replaces the first.
  virtual bool register_buffers(std::span<const std::span<std::byte>>) { return false; }
  /// Starts a batch and returns. `reads` and `sink` must live until finish() or abandon() has returned.
  void start(std::span<const Read> reads, ReadSink& sink);
  /// Hands over what has arrived and submits more, without blocking. Errors wait for finish().
  void poll() noexcept;
  /// Blocks until every read has ended. Throws IoError (path, offset) for the first that failed, after all have ended.
  void finish();
  /// Blocks until nothing is in flight and forgets the batch; for unwinding.
  void abandon() noexcept;

 protected:
  struct Slot {
    Read read{};
    size_t index = 0;   ///< of the read in its batch
    uint32_t done = 0;  ///< bytes that have arrived
    int refusals = 0;
  };

  /// `lent_bytes`: bytes in flight to lent buffers, at most.
  ReadEngine(const ImageSet& images, size_t slots, size_t lent_bytes = ~size_t{0});

  virtual void begin(uint32_t slot) noexcept = 0;
  /// Submits what was queued and calls release() for every slot whose read has ended; waits for one first if `wait`.
  virtual void reap(bool wait) = 0;
  /// Sets up what a batch needs; in a forked child without what the parent had in flight.
  virtual void renew() = 0;

  /// Whether the engine can go on; a forked child begins anew.
  bool owned() const noexcept;
  bool closed() const noexcept { return closed_; }
  size_t in_flight() const noexcept { return in_flight_; }
  const ImageFile& image(const Slot& slot) const noexcept { return images_.images[slot.read.image]; }
  void release(uint32_t slot) noexcept;
  /// Keeps the first error of the batch; nothing new is begun.
  void fail(std::exception_ptr error) noexcept;
  /// Forgets the reads in flight, which nobody ends any more.
  void forget() noexcept { in_flight_ = lent_ = 0; }

  const ImageSet& images_;
  std::vector<Slot> slots_;
  ReadSink* sink_ = nullptr;

 private:
  bool fill() noexcept;
  void drain() noexcept;
  size_t lent_bytes(uint32_t slot) const noexcept;

  size_t most_lent_;
  std::vector<uint32_t> free_;   ///< slots without a read
  std::span<const Read> reads_;  ///< given by the sink last
  size_t next_ = 0;              ///< first of these not yet begun
  size_t base_ = 0;              ///< reads that the sink gave before these
  size_t in_flight_ = 0;         ///< reads begun and not ended
  size_t lent_ = 0;              ///< bytes of these that go to lent buffers
  pid_t owner_ = 0;              ///< process that set the engine up
  bool busy_ = false;            ///< from start() to the end of finish() or abandon()
  bool closed_ = true;           ///< nothing new is begun
  std::exception_ptr error_;
};

/// `images` must outlive the engine.
std::unique_ptr<ReadEngine> make_threads_engine(const ImageSet& images, const EngineOptions& options);
/// Throws RingError with the reason where io_uring cannot be used (built without liburing, forbidden, no
/// descriptors); finish() does where the kernel refuses it later.
std::unique_ptr<ReadEngine> make_uring_engine(const ImageSet& images, const EngineOptions& options);
/// Empty when a ring can be set up in this process and reads, else the reason in words.
std::string uring_unavailable();

/// An engine as users name it.
struct EngineKind {
  std::string name;
  std::unique_ptr<ReadEngine> (*make)(const ImageSet& images, const EngineOptions& options);
  std::string (*unavailable)();  ///< why it cannot be used; empty if it can
};

/// All engines, the best first; the last works everywhere. A new engine is a line here.
std::vector<EngineKind>& engine_kinds();

std::unique_ptr<ReadEngine> make_engine(const std::string& name, const ImageSet& images, const EngineOptions& options);

/// Which engine reads: the one that was named or, of `auto`, the first that can be used. Where the kernel refuses that
/// one later, the last of the table goes on.
class EngineChoice {
 public:
  explicit EngineChoice(const std::string& wanted);

  const std::string& name() const noexcept { return name_; }
  /// Why the first engine of the table is not used although `auto` prefers it; empty otherwise.
  const std::string& fallback() const noexcept { return fallback_; }
  /// Makes the engine; the last of the table where the kernel refuses it.
  std::unique_ptr<ReadEngine> make(const ImageSet& images, const EngineOptions& options);
  /// Chooses the last engine of the table, after `error`; throws it where the engine was named.
  void fall_back(const RingError& error);

 private:
  bool automatic_;
  std::string name_, fallback_;
};

/// Page-aligned anonymous memory.
class AlignedBuffer {
 public:
  /// `kept_from_forks`: children do not have it, so that a fork while it is written to loses nothing.
  explicit AlignedBuffer(size_t bytes, bool kept_from_forks = false);
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;
  ~AlignedBuffer();
  std::byte* data() const noexcept { return data_; }

 private:
  std::byte* data_;
  size_t bytes_;
};

constexpr int64_t round_down(int64_t value, int64_t to) { return value / to * to; }
constexpr int64_t round_up(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

/// Tries after the kernel refuses a read for the moment (EAGAIN), with a pause before each.
inline constexpr int kMaxRefusals = 500;
void pause_after_refusal();

/// Returns the bytes that a read has after a system call brought `arrived` more to its `done`. Throws IoError
/// when the image ends before `need` bytes. Bytes short of an alignment boundary are read again.
uint32_t advance_read(const ImageFile& image, const Read& read, uint32_t done, uint32_t arrived);
/// The error of a forked child that waits for reads its parent began.
IoError inherited_error();
IoError read_error(const ImageFile& image, const Read& read, uint32_t done, int code);

}  // namespace tiering
