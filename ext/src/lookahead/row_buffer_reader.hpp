// One image's part in filling a buffer.
#pragma once

#include <tiering/lookahead/row_buffer.hpp>

namespace tiering {

struct RowBuffer::Flight {
  Round round;
  std::atomic<int64_t> parts;  ///< images that have not come to its end, and reads under way
  bool done = false;           ///< guarded by the buffer's mutex
};

/// The reads of one stripe file and the rows that arrive from it.
class RowBuffer::Reader final : public ReadSink {
 public:
  Reader(RowBuffer& buffer, const RowReads& reads, uint32_t image)
      : buffer_(buffer), reads_(reads), copies_(reads), image_(image) {}

  std::span<const Read> more(bool wait) noexcept override;
  void ready(size_t index, const std::byte* data) noexcept override;
  /// Another engine begins: what has not arrived is asked for again.
  void restart() noexcept { again_ = true; }

 private:
  struct Pending {
    std::shared_ptr<Flight> flight;
    RowRead rows;
    bool arrived = false;
  };

  std::span<const Read> next_reads(bool wait);
  bool intact(const Read& read, const std::byte* data) noexcept;
  bool take_round() noexcept;

  RowBuffer& buffer_;
  RowReads reads_;
  const RowReads copies_;  ///< each who copies rows takes one of his own: they remember what they did last
  uint32_t image_;
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
