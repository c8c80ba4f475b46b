// The base of engines: slots for the reads of a batch, its first error, and its end.
#pragma once

#include <sys/types.h>

#include <exception>
#include <tiering/io/read_engine.hpp>
#include <vector>

namespace tiering {

/// An engine is begin() and reap(): this class takes reads from the sink while slots are free, keeps the first error, and
/// waits for what is in flight. All of it runs on the caller's thread. After an error nothing new is begun.
class QueuedEngine : public ReadEngine {
 public:
  void start(std::span<const Read> reads, ReadSink& sink) final;
  void poll() noexcept final;
  void finish() final;
  void abandon() noexcept final;

 protected:
  struct Slot {
    Read read{};
    size_t index = 0;   ///< of the read in its batch
    uint32_t done = 0;  ///< bytes that have arrived
    int refusals = 0;
  };

  /// `lent_bytes`: bytes in flight to lent buffers, at most.
  QueuedEngine(const ImageSet& images, size_t slots, size_t lent_bytes = ~size_t{0});

  /// Queues the read of a slot.
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

}  // namespace tiering
