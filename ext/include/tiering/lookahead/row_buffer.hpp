// A buffer in front of the ssd tier: what a plan says is read ahead, in page order, by threads of its own, and batches
// are copied from memory tiers and slots.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>
#include <tiering/io/page_hash.hpp>
#include <tiering/lookahead/plan.hpp>

namespace tiering {

struct BufferOptions {
  std::string engine = "auto";   ///< see EngineChoice; `bam`: the caller reads, by next_fill()
  int depth = 128;               ///< reads in flight for each image
  int64_t max_read = 256 << 10;  ///< bytes of the longest read
};

/// Counters of a buffer since it was made or they were reset.
struct BufferCounters {
  int64_t batches = 0;
  int64_t rounds = 0;
  int64_t rows = 0;              ///< rows of the ssd tier that batches took
  int64_t needed = 0;            ///< different rows per round
  int64_t missed = 0;            ///< of these, read from the images
  int64_t reads = 0;             ///< requests
  int64_t read_bytes = 0;        ///< bytes of these requests
  int64_t used_bytes = 0;        ///< bytes of the missed rows
  int64_t wait_nanoseconds = 0;  ///< gathers that waited for reads
  int64_t idle_nanoseconds = 0;  ///< readers with nothing in flight that waited for slots or a round, over all images
};

/// The tables, their images, and memory for `pools`. One epoch at a time: begin(), then add() for each batch and end()
/// by one thread, wait() and release() for each batch, part by part, by others, and cancel() when all have come to an
/// end. A forked child can do nothing with its copy but drop it.
class RowBuffer {
 public:
  /// `arena`: page-aligned memory of SlotArena::bytes(), which outlives this.
  RowBuffer(SsdRows rows, const std::vector<SlotPool>& pools, std::vector<std::string> images, DirectMode direct,
            BufferOptions options, PageChecksums checksums, std::byte* arena);
  ~RowBuffer();
  RowBuffer(const RowBuffer&) = delete;
  RowBuffer& operator=(const RowBuffer&) = delete;

  /// Bytes of buffers that the readers of all stripe files hold in addition to the arena, if no file needs an alignment
  /// above kReadAlignment.
  static int64_t staging_bytes(const SsdRows& rows, const BufferOptions& options);

  /// Rows of one table that the caller reads, ascending, by number within it, and the slot of each.
  struct Fill {
    size_t table = 0;
    std::vector<int64_t> rows{};
    std::vector<uint32_t> slots{};
  };
  /// With engine `bam`, by one thread: what it asked for last has been read; waits for slots that are free, and says
  /// which rows they are for. No rows: the epoch is over.
  Fill next_fill();

  /// Begins an epoch: readers start. `window` and `horizon` as in LookaheadPlan, in parts of batches (see cut_batch);
  /// reads go on through `gap` bytes that nobody asked for, because that is cheaper than one read more.
  void begin(int64_t window, int64_t horizon, int64_t gap, bool growing = false);
  /// Takes the rows of the next batch, each once; waits while enough are known. False: canceled.
  bool add(std::vector<uint32_t> rows);
  /// No batch follows: plans the rest. False: canceled.
  bool end();
  /// Lets add(), end() and wait() return, and readers begin nothing new. By anybody.
  void stop() noexcept;
  /// Ends the epoch: readers stop, what was not read is forgotten. What is in the buffer stays. By anybody.
  void cancel() noexcept;

  /// Some of a batch's rows, which are in their slots.
  struct PartSlots {
    std::span<const uint32_t> slots{};   ///< a slot for each row
    std::span<const uint32_t> places{};  ///< of each among the rows of the batch, as given; empty: all of them
    size_t batch_rows = 0;               ///< rows of the whole batch
    bool last = false;                   ///< no part of the batch follows
  };
  /// Waits until the rows of a part are there. The caller copies them, then calls release(), which ends the lists too.
  /// Throws what readers met.
  PartSlots wait(int64_t batch, int64_t part = 0);
  /// The part needs its slots no more. Parts of a batch are released in order, batches in any. A slot is filled again
  /// when every part up to the last that uses it was released.
  void release(int64_t batch, int64_t part = 0);

  const SsdRows& rows() const noexcept { return rows_; }
  const SlotArena& slots() const noexcept { return slots_; }
  BufferCounters counters() const { return locked(counters_); }
  void reset_counters() {
    const std::lock_guard lock(mutex_);
    counters_ = {};
  }
  bool filled_by_caller() const noexcept { return options_.engine == "bam"; }
  std::string engine_name() const { return filled_by_caller() ? options_.engine : locked(engine_).name(); }
  std::string fallback() const { return locked(engine_).fallback(); }
  bool direct() const noexcept { return images_.direct(); }
  std::string note() const { return images_.note(); }
  /// The first page that is not what its checksum says, by its number (SsdGeometry); kNoPage if there is none.
  int64_t bad_page() const { return locked(bad_page_); }

 private:
  template <typename T>
  T locked(const T& member) const {
    const std::lock_guard lock(mutex_);
    return member;
  }
  struct Flight;
  class Reader;

  const Round* read_round(int64_t number) const noexcept;

  void expect_own() const;
  void run(uint32_t image);
  Fill give(const Round& round);
  void touch_arena();
  bool far_enough() const;
  void plan_rounds();
  void run_planner();
  template <typename Work>
  bool after_changes(Work&& work);
  void finish(Flight& flight);
  void note_change();
  void fail(std::exception_ptr error) noexcept;

  /// A batch that was added and is not released.
  struct Batch {
    int64_t first;                              ///< the plan's number of its first part
    size_t rows;                                ///< of all parts
    int64_t released;                           ///< parts that were
    std::vector<std::vector<uint32_t>> places;  ///< per part
  };
  Batch& batch_at(int64_t batch);

  SsdRows rows_;
  std::vector<SlotPool> pools_;
  ImageSet images_;
  BufferOptions options_;
  PageChecksums checksums_;
  std::byte* arena_;
  SlotArena slots_;      ///< of the arena, for those who read
  std::mutex ending_;    ///< held while readers are waited for
  std::mutex planning_;  ///< taken before mutex_; guards plan_, but not where slots lie, which never changes
  LookaheadPlan plan_;
  mutable std::mutex mutex_;  ///< guards the rest
  std::unique_ptr<std::condition_variable> changed_ = std::make_unique<std::condition_variable>();
  std::deque<std::shared_ptr<Flight>> flights_;  ///< rounds planned whose batches are not all released
  std::deque<Batch> batches_;                    ///< from `released_` on
  int64_t done_ = 0;                             ///< the plan's number of the first part that is not released
  std::set<int64_t> done_early_;                 ///< others that were released
  int64_t added_ = 0, released_ = 0;             ///< batches of this epoch; all before `released_` were released
  int64_t most_waiting_ = 0;                     ///< parts added and not planned
  int64_t most_planned_ = 0;                     ///< parts planned and not released; a round more is planned below
  int64_t gap_ = 0;
  size_t filled_ = 0, given_ = 0;  ///< rows of the first round that is not done: read by the caller, asked for
  int64_t changes_ = 0;            ///< counts what somebody may wait for
  bool running_ = false;
  bool ended_ = false;  ///< no batch follows those added
  bool touched_ = false;
  int64_t bad_page_ = kNoPage;
  EngineChoice engine_;
  std::exception_ptr error_;
  BufferCounters counters_;
  std::vector<std::thread> threads_;  ///< the planner, readers
  std::atomic<pid_t> owner_ = 0;      ///< process of the threads; 0 before the first epoch
};

}  // namespace tiering
