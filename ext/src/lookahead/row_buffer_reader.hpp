// The reads of one stripe file for a buffer: those of the rounds in the order of their planning, as far as slots are free.
#pragma once

#include <tiering/lookahead/row_buffer.hpp>

namespace tiering {

struct RowBuffer::Flight {
  Round round;
  std::atomic<int64_t> parts;  ///< images that have not come to its end, and reads under way
  bool done = false;           ///< guarded by the buffer's mutex
};

class RowBuffer::Reader final : public ReadSink {
 public:
  Reader(RowBuffer& buffer, const RowReads& reads) : buffer_(buffer), reads_(reads), copies_(reads) {}

  std::span<const Read> more(bool wait) noexcept override {
    try {
      return next_reads(wait);
    } catch (...) {  // no memory
      buffer_.fail(std::current_exception());
      return {};
    }
  }

  void ready(size_t index, const std::byte* data) noexcept override {
    std::unique_lock lock(pending_mutex_);
    Pending& pending = pending_[index - first_];  // stays where it is until it has arrived
    lock.unlock();
    const std::shared_ptr<Flight> flight = pending.flight;
    const Round& round = flight->round;
    const Read& read = pending.rows.read;
    if (intact(read, data)) {
      RowReads reads = copies_;  // several threads may be here
      for (size_t i = pending.rows.begin; i < pending.rows.end; ++i)
        reads.copy(round.rows[i], read.offset, {data, read.need},
                   buffer_.arena_ + buffer_.slots_.offset(round.slots[i]));
    }
    lock.lock();
    pending.arrived = true;
    lock.unlock();
    if (--flight->parts == 0) {
      const std::lock_guard changing(buffer_.mutex_);
      buffer_.finish(*flight);
    }
  }

  /// Another engine begins: what has not arrived is asked for again.
  void restart() noexcept { again_ = true; }

 private:
  static constexpr size_t kReadsAtOnce = 64;  ///< handed to an engine before the state is looked at again

  struct Pending {
    std::shared_ptr<Flight> flight;
    RowRead rows;
    bool arrived = false;
  };

  std::span<const Read> next_reads(bool wait) {
    batch_.clear();
    {
      const std::lock_guard lock(pending_mutex_);
      if (std::exchange(again_, false)) {
        std::erase_if(pending_, [](const Pending& p) { return p.arrived; });
        first_ = 0;
        for (const Pending& p : pending_) batch_.push_back(p.rows.read);
        if (!batch_.empty()) return batch_;
      }
      while (!pending_.empty() && pending_.front().arrived) {
        pending_.pop_front();
        ++first_;
      }
    }
    std::unique_lock lock(buffer_.mutex_);
    while (buffer_.running_ && !buffer_.error_ && batch_.size() < kReadsAtOnce) {
      if (flight_ || take_round()) {
        const auto& rows = flight_->round.rows;
        const auto& after = flight_->round.after;
        while (open_ < rows.size() && after[open_] <= buffer_.done_) ++open_;
        if (RowRead found; reads_.next(rows, at_, open_, found)) {
          ++flight_->parts;
          {
            const std::lock_guard pending(pending_mutex_);
            pending_.push_back({flight_, found});
          }
          batch_.push_back(found.read);
          buffer_.counters_.read_bytes += found.read.bytes;
          continue;
        }
        if (open_ == rows.size()) {
          const auto flight = std::exchange(flight_, nullptr);
          if (--flight->parts == 0) buffer_.finish(*flight);
          continue;
        }
      }
      if (!wait || !batch_.empty()) break;
      const int64_t start = nanoseconds();
      buffer_.changed_->wait(lock);
      buffer_.counters_.idle_nanoseconds += nanoseconds() - start;
    }
    buffer_.counters_.reads += static_cast<int64_t>(batch_.size());
    return batch_;
  }

  bool intact(const Read& read, const std::byte* data) noexcept {
    const int64_t page = damaged_page(buffer_.checksums_, buffer_.rows_.tables().front().geometry, read, data);
    if (page == kNoPage) return true;
    {
      const std::lock_guard lock(buffer_.mutex_);
      if (buffer_.bad_page_ == kNoPage || page < buffer_.bad_page_) buffer_.bad_page_ = page;
    }
    buffer_.fail(std::make_exception_ptr(IoError(EIO, "page " + std::to_string(page) + " is damaged")));
    return false;
  }

  /// Begins the next round. The buffer's mutex is held.
  bool take_round() noexcept {
    for (const auto& flight : buffer_.flights_)
      if (flight->round.first > begun_) {
        flight_ = flight;
        begun_ = flight->round.first;
        at_ = open_ = 0;
        return true;
      }
    return false;
  }

  RowBuffer& buffer_;
  RowReads reads_;
  const RowReads copies_;           ///< each who copies rows takes one of his own: they remember what they did last
  std::shared_ptr<Flight> flight_;  ///< the round that is read
  int64_t begun_ = -1;              ///< first batch of the round that was begun last
  size_t at_ = 0, open_ = 0;        ///< rows of the round that were asked for, and that may be
  std::mutex pending_mutex_;        ///< guards what is pending, whose reads may end while more are asked for
  std::deque<Pending> pending_;
  size_t first_ = 0;  ///< index of the first that is pending
  std::vector<Read> batch_;
  bool again_ = false;
};

}  // namespace tiering
