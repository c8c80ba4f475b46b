// How a buffer is filled.
//
// One thread per image reads, with an engine of its own that is never drained between rounds: it takes the rounds in
// the order of their planning, each in the order of its pages, and waits only for slots that batches still use. A
// thread plans; a round is done when all images are done with it.
#include <unistd.h>

#include <tiering/parallel.hpp>

#include "row_buffer_reader.hpp"

namespace tiering {
namespace {

constexpr int64_t kRoundsAhead = 2;     // planned and not yet read, if they keep the disks busy; or copied
constexpr int64_t kLeastPlanned = 16;   // parts planned and not released, at least
constexpr int64_t kDepthsAhead = 2;     // rows of them, by what all images have in flight
constexpr int64_t kStaging = 64 << 20;  // bytes of an engine's buffers, at most
constexpr int64_t kMinDepth = 8;
constexpr int64_t kPerRead = 4096;  // bytes of an engine per read, besides its buffer: list of pages, queue entries

/// Bytes of the longest read: at least the longest extent of a row on one image, with `align` at both ends.
int64_t longest_read(const SsdRows& rows, const BufferOptions& options, int64_t align) {
  int64_t longest = options.max_read;
  for (const auto& [count, row_bytes, at] : rows.tables())
    longest = std::max(longest, (row_bytes / at.page_bytes + 2) * at.page_bytes + 2 * align);
  return longest;
}

int fitting_depth(const BufferOptions& options) {
  TIERING_EXPECT(options.depth >= 1 && options.depth <= 4096, "depth: expected 1 to 4096 reads in flight, found ",
                 options.depth);
  TIERING_EXPECT(options.max_read >= 1, "max_read: expected at least 1, found ", options.max_read);
  const int64_t most = std::max(kMinDepth, kStaging / options.max_read);
  return static_cast<int>(std::min<int64_t>(options.depth, most));
}

}  // namespace

RowBuffer::RowBuffer(SsdRows rows, const std::vector<SlotPool>& pools, std::vector<std::string> images,
                     DirectMode direct, BufferOptions options, PageChecksums checksums, std::byte* arena)
    : rows_(std::move(rows)),
      pools_(pools),
      images_(options.engine == "bam" ? ImageSet{} : ImageSet::open(images, direct)),
      options_(std::move(options)),
      checksums_(std::move(checksums)),
      arena_(arena),
      slots_(arena, pools),
      plan_(rows_, pools),
      engine_(filled_by_caller() ? "auto" : options_.engine) {
  TIERING_EXPECT(static_cast<int64_t>(images.size()) == rows_.tables().front().geometry.num_images,
                 "images: expected as many as rows are striped over");
  expect_checksums(checksums_, rows_.tables().front().geometry, rows_.units());
  fitting_depth(options_);  // checks the rest
  options_.max_read = longest_read(rows_, options_, std::max(images_.offset_alignment, kReadAlignment));
}

RowBuffer::~RowBuffer() { cancel(); }

int64_t RowBuffer::staging_bytes(const SsdRows& rows, const BufferOptions& options) {
  fitting_depth(options);  // checks them
  BufferOptions whole = options;
  whole.max_read = longest_read(rows, options, kReadAlignment);
  return rows.tables().front().geometry.num_images * fitting_depth(whole) * (whole.max_read + kPerRead);
}

void RowBuffer::expect_own() const {
  if (owner_ != 0 && owner_ != getpid()) throw inherited_error();
}

void RowBuffer::begin(int64_t window, int64_t horizon, int64_t gap, bool growing) {
  expect_own();
  TIERING_EXPECT(threads_.empty(), "an epoch is running");
  plan_.set_window(window, horizon, growing);
  most_waiting_ = window + horizon + 1;
  most_planned_ = std::max(kLeastPlanned, kRoundsAhead * window);
  gap_ = gap;
  {
    const std::lock_guard lock(mutex_);
    running_ = true;
    error_ = nullptr;
    bad_page_ = kNoPage;
    added_ = released_ = 0;
    filled_ = given_ = 0;
    ended_ = false;
    owner_ = getpid();
  }
  threads_.emplace_back([this] { run_planner(); });
  if (filled_by_caller()) return;
  for (uint32_t image = 0; image < images_.images.size(); ++image) threads_.emplace_back([this, image] { run(image); });
  if (!std::exchange(touched_, true)) threads_.emplace_back([this] { touch_arena(); });
}

/// Lets the kernel give the arena its pages ahead of the readers, who come to its slots in order at first: the first
/// touch takes as long as the copy into them.
void RowBuffer::touch_arena() {
  constexpr int64_t kStep = 4 << 20;
  constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE of kernel 5.14; by value, because headers may be older
  for (int64_t at = 0; at < slots_.bytes(); at += kStep) {
    {
      const std::lock_guard lock(mutex_);
      if (!running_) return;
    }
    const auto bytes = static_cast<size_t>(std::min(kStep, slots_.bytes() - at));
    if (madvise(arena_ + at, bytes, kPopulateWrite) != 0) return;  // then readers do it
  }
}

void RowBuffer::run(uint32_t image) {
  try {
    const SsdGeometry& at = rows_.tables().front().geometry;
    const ReadRules rules{.align = std::max(images_.offset_alignment, kReadAlignment),
                          .unit = checksums_.empty() ? 1 : at.page_bytes,
                          .gap = gap_,
                          .max_read = options_.max_read};
    Reader reader(*this, RowReads(rows_, image, rules));
    const EngineOptions engine{.depth = fitting_depth(options_),
                               .max_read = static_cast<uint32_t>(options_.max_read),
                               .kept_from_forks = true};
    auto read_all = [&] {
      const auto made = make_engine(engine_name(), images_, engine);
      made->start({}, reader);
      made->finish();
    };
    try {
      read_all();
    } catch (const RingError& error) {
      {
        const std::lock_guard lock(mutex_);
        engine_.fall_back(error);
      }
      reader.restart();
      read_all();
    }
  } catch (...) {
    fail(std::current_exception());
  }
}

RowBuffer::Fill RowBuffer::next_fill() {
  expect_own();
  std::unique_lock lock(mutex_);
  filled_ = given_;
  for (const int64_t start = nanoseconds();;) {
    if (!running_ || error_) return {};
    const auto flight = std::find_if(flights_.begin(), flights_.end(), [](const auto& one) { return !one->done; });
    if (flight != flights_.end() && filled_ == (*flight)->round.rows.size()) {
      finish(**flight);
      filled_ = given_ = 0;
    } else if (flight != flights_.end() && (*flight)->round.after[filled_] <= done_) {
      counters_.idle_nanoseconds += nanoseconds() - start;
      return give((*flight)->round);
    } else {
      changed_->wait(lock);
    }
  }
}

/// The rows of a round that are asked for next: those of one table whose slots are free. The mutex is held.
RowBuffer::Fill RowBuffer::give(const Round& round) {
  Fill fill{.table = rows_.table_of(round.rows[filled_])};
  const SsdGeometry& at = rows_.tables()[fill.table].geometry;
  const int64_t row_bytes = rows_.tables()[fill.table].row_bytes;
  int64_t pages = 0, last_page = -1, of_image = -1;
  for (; given_ < round.rows.size() && round.after[given_] <= done_; ++given_) {
    if (round.rows[given_] >= rows_.first(fill.table + 1)) break;
    fill.rows.push_back(round.rows[given_] - rows_.first(fill.table));
    fill.slots.push_back(round.slots[given_]);
    const auto [image, offset] = at.place(fill.rows.back());
    const int64_t first = offset / at.page_bytes;
    if (std::exchange(of_image, image) != image) last_page = -1;
    const int64_t last = (offset + row_bytes - 1) / at.page_bytes;
    pages += last - std::max(last_page, first - 1);
    last_page = last;
  }
  counters_.reads += pages;
  counters_.read_bytes += pages * at.page_bytes;
  return fill;
}

/// Tells everybody of an error; the first one counts.
void RowBuffer::fail(std::exception_ptr error) noexcept {
  const std::lock_guard lock(mutex_);
  if (!error_) error_ = std::move(error);
  changed_->notify_all();
}

/// The rows of a round have arrived, unless there was an error: its reads are forgotten. The mutex is held.
void RowBuffer::finish(Flight& flight) {
  flight.done = true;
  if (!error_) flight.round.rows = flight.round.slots = flight.round.after = {};
  note_change();
}

/// Something that others may wait for. The mutex is held.
void RowBuffer::note_change() {
  ++changes_;
  changed_->notify_all();
}

/// Returns whether enough rounds are planned: their rows keep `depth` reads of every stripe file in flight until the
/// next round is planned (GIDS, equations 2 and 3), or their slots would take too much memory. `planning_` and the
/// mutex are held.
bool RowBuffer::far_enough() const {
  if (plan_.first() - done_ >= most_planned_) return true;
  int64_t rounds = 0, rows = 0;
  for (const auto& flight : flights_)
    if (!flight->done) {
      ++rounds;
      rows += static_cast<int64_t>(flight->round.rows.size());
    }
  return rounds >= kRoundsAhead && rows >= kDepthsAhead * options_.depth * rows_.tables().front().geometry.num_images;
}

/// Plans what can be planned. `planning_` is held.
void RowBuffer::plan_rounds() {
  while (plan_.ready()) {
    {
      const std::lock_guard lock(mutex_);
      if (!running_ || error_ || far_enough()) return;
    }
    auto flight = std::make_shared<Flight>();
    flight->round = plan_.next();
    flight->parts = static_cast<int64_t>(images_.images.size());
    const std::lock_guard lock(mutex_);
    ++counters_.rounds;
    counters_.needed += flight->round.needed;
    counters_.missed += static_cast<int64_t>(flight->round.rows.size());
    size_t table = 0;
    for (const uint32_t row : flight->round.rows) {
      table = rows_.table_of(row, table);
      counters_.used_bytes += rows_.tables()[table].row_bytes;
    }
    flights_.push_back(std::move(flight));
    note_change();
  }
}

/// Calls work() now and after every change, with `planning_` held, until it returns true. False: canceled, or an
/// error.
template <typename Work>
bool RowBuffer::after_changes(Work&& work) {
  std::unique_lock planning(planning_);
  for (;;) {
    int64_t seen;
    {
      const std::lock_guard lock(mutex_);
      if (!running_ || error_) return false;
      seen = changes_;
    }
    if (work()) return true;
    planning.unlock();
    {
      std::unique_lock lock(mutex_);
      changed_->wait(lock, [&] { return !running_ || error_ || changes_ != seen; });
    }
    planning.lock();
  }
}

void RowBuffer::run_planner() {
  try {
    after_changes([&] {
      plan_rounds();
      return false;
    });
  } catch (...) {  // no memory
    fail(std::current_exception());
  }
}

bool RowBuffer::add(std::vector<uint32_t> rows) {
  expect_own();
  const size_t number = rows.size();
  std::vector<BatchPart> parts = cut_batch(rows_, pools_, std::move(rows));
  return after_changes([&] {
    if (plan_.waiting() >= most_waiting_) return false;
    Batch batch{plan_.first() + plan_.waiting(), number, 0, {}};
    for (BatchPart& part : parts) {
      plan_.add(std::move(part.rows));
      batch.places.push_back(std::move(part.places));
    }
    const std::lock_guard lock(mutex_);
    batches_.push_back(std::move(batch));
    ++added_;
    counters_.rows += static_cast<int64_t>(number);
    note_change();
    return true;
  });
}

bool RowBuffer::end() {
  expect_own();
  {
    const std::lock_guard planning(planning_);
    plan_.end();
    const std::lock_guard lock(mutex_);
    ended_ = true;
    note_change();
  }
  return after_changes([&] { return plan_.waiting() == 0; });
}

/// A batch that was added and is not released. The mutex is held.
RowBuffer::Batch& RowBuffer::batch_at(int64_t batch) {
  TIERING_EXPECT(batch >= released_ && batch < added_, "batch ", batch, ": expected one of ", released_, "..",
                 added_ - 1);
  return batches_[batch - released_];
}

/// The round of a part, by the plan's number, if it was read; else null. The mutex is held.
const Round* RowBuffer::read_round(int64_t number) const noexcept {
  for (const auto& flight : flights_)
    if (!flight->done)
      break;  // rounds before bring rows, too, that the part finds in the buffer
    else if (number < flight->round.last)
      return &flight->round;
  return nullptr;
}

RowBuffer::PartSlots RowBuffer::wait(int64_t batch, int64_t part) {
  expect_own();
  std::unique_lock lock(mutex_);
  const int64_t start = nanoseconds();
  for (;;) {
    if (error_) std::rethrow_exception(error_);
    TIERING_EXPECT(running_, "the epoch was ended");
    if (batch < added_ || ended_) {
      const Batch& given = batch_at(batch);
      const auto parts = static_cast<int64_t>(given.places.size());
      TIERING_EXPECT(part >= given.released && part < parts, "batch ", batch, ": expected part ", given.released, "..",
                     parts - 1, ", found ", part);
      const int64_t number = given.first + part;
      if (const Round* const round = read_round(number)) {
        counters_.wait_nanoseconds += nanoseconds() - start;
        return {round->batch_slots[number - round->first], given.places[part], given.rows, part + 1 == parts};
      }
    }
    changed_->wait(lock);
  }
}

void RowBuffer::release(int64_t batch, int64_t part) {
  const std::lock_guard lock(mutex_);
  Batch& given = batch_at(batch);
  const int64_t number = given.first + part;
  TIERING_EXPECT(part == given.released, "batch ", batch, ": expected part ", given.released, ", found ", part);
  ++given.released;
  given.places[part] = {};
  for (const auto& flight : flights_)
    if (number >= flight->round.first && number < flight->round.last)
      flight->round.batch_slots[number - flight->round.first] = {};
  done_early_.insert(number);
  while (done_early_.erase(done_) > 0) ++done_;
  while (!flights_.empty() && flights_.front()->done && flights_.front()->round.last <= done_) flights_.pop_front();
  if (given.released == static_cast<int64_t>(given.places.size())) ++counters_.batches;
  for (; !batches_.empty() && batches_.front().released == static_cast<int64_t>(batches_.front().places.size());
       batches_.pop_front())
    ++released_;
  note_change();
}

void RowBuffer::stop() noexcept {
  if (owner_ != getpid()) return;  // no epoch, or a fork, in which somebody may hold the mutex for ever
  const std::lock_guard lock(mutex_);
  running_ = false;
  changed_->notify_all();
}

void RowBuffer::cancel() noexcept {
  if (owner_ != getpid()) {
    if (threads_.empty()) return;
    // A fork, in which the readers do not exist: their handles may be those of other threads by now, and to destroy
    // what they wait for would be to wait for them.
    static_cast<void>(new (std::nothrow) std::vector<std::thread>(std::move(threads_)));
    static_cast<void>(changed_.release());
    return;
  }
  const std::lock_guard ending(ending_);
  if (threads_.empty()) return;
  stop();
  for (std::thread& reader : threads_) reader.join();
  threads_.clear();
  const std::lock_guard planning(planning_);
  const std::lock_guard lock(mutex_);
  for (; !flights_.empty(); flights_.pop_back())
    if (!flights_.back()->done || error_) plan_.forget(flights_.back()->round);
  plan_.drop_waiting();
  batches_.clear();
  done_early_.clear();
  done_ = plan_.first();
}

}  // namespace tiering
