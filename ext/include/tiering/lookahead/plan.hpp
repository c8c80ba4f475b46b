// Which rows of the ssd tier are read when, into which slots of a buffer, and which rows make room for them.
// Consecutive batches (or parts of batches, see cut_batch) form rounds: what a round needs and the buffer lacks is read
// at once, in page order. The row that gives way is the one whose next use is farthest, or not known, and among those
// of unknown use the last in rank (Belady's rule for what is known). Nothing here reads: RowBuffer carries plans out,
// simulations price them.
#pragma once

#include <deque>
#include <tiering/buffer.hpp>
#include <tiering/lookahead/ssd_rows.hpp>

namespace tiering {

/// Batches [first, last), numbered from the begin of the plan, and what has to be read for them.
struct Round {
  int64_t first = 0;
  int64_t last = 0;
  int64_t needed = 0;             ///< different rows that the batches use
  std::vector<uint32_t> rows{};   ///< rows to read, ascending; none once they are read
  std::vector<uint32_t> slots{};  ///< where each goes
  std::vector<uint32_t> after{};  ///< batches that must be done with the slot before: all before this number
  std::vector<std::vector<uint32_t>> batch_slots{};  ///< per batch: the slot of each row, in the order they were given
};

class LookaheadPlan {
 public:
  /// `pools`: one for each size of row among the tables.
  LookaheadPlan(const SsdRows& rows, const std::vector<SlotPool>& pools);

  /// `window`: batches of a round at most. `horizon`: batches behind a round whose rows are to be known before it is
  /// planned, as far as there are any. No batch may wait. `growing`: rounds begin with an eighth of that and grow, so
  /// that the first batches need not wait for a whole window.
  void set_window(int64_t window, int64_t horizon, bool growing = false);

  /// Bytes of a plan for `rows` and `slots`, excluding the rows of batches to come.
  static int64_t state_bytes(int64_t rows, int64_t slots) { return 8 * rows + rows / 4 + 8 * slots; }

  /// Takes the rows of the next batch, each once. Throws InputError where they are more than a pool has slots.
  void add(std::vector<uint32_t> rows);
  /// No batch follows those added: rounds need not wait for any. Undone by the next add().
  void end() noexcept { ended_ = true; }
  bool ready() const noexcept;
  /// Plans the next round; ready() must hold.
  Round next();
  /// Batches added and not planned.
  int64_t waiting() const noexcept { return static_cast<int64_t>(future_.size()); }
  /// Number of the first batch that is not planned.
  int64_t first() const noexcept { return first_; }
  /// Forgets batches that were added and not planned.
  void drop_waiting();
  /// The rows of a round did not arrive: their slots are empty.
  void forget(const Round& round);

 private:
  struct Pool {
    int64_t row_bytes;
    uint32_t begin, end;
    uint32_t fresh;              ///< slots from here on were never given out
    std::vector<uint32_t> free;  ///< of those before, the ones that hold nothing
    int64_t needed;              ///< rows of the open round
  };

  bool extend();
  void open_round();
  void note_next_uses(int64_t from);
  void make_room(Pool& pool, int64_t slots, int64_t past, std::vector<uint32_t>& given);
  size_t pool_of(uint32_t row) noexcept {
    table_ = rows_.table_of(row, table_);
    return pool_of_table_[table_];
  }

  const SsdRows& rows_;
  int64_t window_ = 1, horizon_ = 0;
  int64_t most_ = 1;  ///< batches of the open round: window_, or less while rounds grow
  std::vector<Pool> pools_;
  std::vector<size_t> pool_of_table_;
  size_t table_ = 0;           ///< of the row that was looked up last
  Buffer<uint32_t> slot_of_;   ///< per row
  Buffer<uint32_t> next_use_;  ///< per row: the batch of its next use behind the open round, if it is one that waits
  Buffer<uint64_t> wanted_;    ///< bit per row: the open round uses it
  Buffer<uint64_t> resident_;  ///< bit per row: slot_of_ says where
  Buffer<uint32_t> row_in_;    ///< per slot; kNoRow
  Buffer<uint32_t> last_use_;  ///< per slot: one more than the number of the last batch that used it
  std::deque<std::vector<uint32_t>> future_;  ///< batches from first_ on
  int64_t first_ = 0;                         ///< the first batch of the open round
  int64_t open_ = 0;                          ///< batches in it so far
  bool full_ = false;                         ///< the next batch does not fit into it
  bool ended_ = false;
};

/// Reads of a round and their bytes; they read through gaps of at most `gap` bytes.
struct ReadCount {
  int64_t reads = 0;
  int64_t bytes = 0;
};
ReadCount count_reads(const SsdRows& rows, std::span<const uint32_t> list, int64_t num_images, const ReadRules& rules);

/// Some of a batch's rows; to a plan it is a batch of its own. A batch that takes many slots is planned, read and
/// copied part by part, in page order.
struct BatchPart {
  std::vector<uint32_t> rows{};
  std::vector<uint32_t> places{};  ///< of each row among the batch's; empty: the part is the batch
};

/// A part takes at most this share of the slots: while one is copied others are read, and slots go to rows of parts to
/// come as soon as a part is copied. Smaller shares read no less.
inline constexpr int64_t kPartsOfSlots = 8;
/// A part of so few rows stays whole where there are slots for it, however few these are.
inline constexpr int64_t kLeastPart = 16;

/// Cuts the rows of a batch, each given once, into parts of about equal size. A batch that needs few slots stays whole,
/// in the order it was given in; parts follow each other in page order.
std::vector<BatchPart> cut_batch(const SsdRows& rows, std::span<const SlotPool> pools, std::vector<uint32_t> batch);

}  // namespace tiering
