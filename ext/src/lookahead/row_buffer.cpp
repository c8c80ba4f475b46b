// How a buffer is filled.
//
// One thread per image reads, with an engine of its own that is never drained between rounds: it takes the rounds in the
// order of their planning, each in the order of its pages, and waits only for slots that batches still use. The thread
// that adds batches plans; a round is done when all images are done with it.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <new>
#include <tiering/lookahead/row_buffer.hpp>
#include <utility>

#include "row_buffer_reader.hpp"

namespace tiering {
namespace {

constexpr int64_t kRoundsAhead = 2;     // planned and not yet read
constexpr int64_t kStaging = 64 << 20;  // bytes of buffers of an engine at the most
constexpr int64_t kMinDepth = 8;

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

int fitting_depth(const BufferOptions& options) {
  TIERING_EXPECT(options.depth >= 1 && options.depth <= 4096,
                 "depth: expected 1 to 4096 reads in flight, found " + std::to_string(options.depth));
  TIERING_EXPECT(options.max_read >= 1, "max_read: expected at least 1, found " + std::to_string(options.max_read));
  const int64_t most = std::max(kMinDepth, kStaging / options.max_read);
  return static_cast<int>(std::min<int64_t>(options.depth, most));
}

/// Every page that holds rows has a checksum, where there are any.
void expect_checksums(const SsdRows& rows, const PageChecksums& checksums) {
  if (checksums.empty()) return;
  const int64_t images = rows.tables().front().geometry.num_images;
  TIERING_EXPECT(static_cast<int64_t>(checksums.size()) == images, "checksums: expected an array for each of " +
                                                                       std::to_string(images) + " images, found " +
                                                                       std::to_string(checksums.size()));
  for (int64_t image = 0; image < images; ++image) {
    const int64_t pages = (rows.pages() - image + images - 1) / images;
    const auto given = static_cast<int64_t>(checksums[size_t(image)].size());
    TIERING_EXPECT(given >= pages, "checksums: expected " + std::to_string(pages) + " for image " +
                                       std::to_string(image) + ", found " + std::to_string(given));
  }
}

}  // namespace

RowBuffer::RowBuffer(SsdRows rows, const std::vector<SlotPool>& pools, std::vector<std::string> images,
                     DirectMode direct, BufferOptions options, PageChecksums checksums, std::byte* arena)
    : rows_(std::move(rows)),
      images_(ImageSet::open(images, direct)),
      options_(std::move(options)),
      checksums_(std::move(checksums)),
      arena_(arena),
      slots_(arena, pools),
      plan_(rows_, pools) {
  TIERING_EXPECT(static_cast<int64_t>(images_.images.size()) == rows_.tables().front().geometry.num_images,
                 "images: expected as many as rows are striped over");
  expect_checksums(rows_, checksums_);
  const auto& engine = options_.engine;
  TIERING_EXPECT(engine == "auto" || engine == "io_uring" || engine == "threads" || engine == "mmap",
                 "engine: expected io_uring, threads, mmap or auto, found '" + engine + "'");
  fitting_depth(options_);  // checks the rest
  if (options_.engine == "auto") {
    fallback_ = uring_unavailable();
    engine_name_ = fallback_.empty() ? "io_uring" : "threads";
  } else {
    engine_name_ = options_.engine;
  }
  for (const SsdTable& table : rows_.tables())  // the longest extent of a row on one image, with alignment at both ends
    options_.max_read =
        std::max(options_.max_read, (table.row_bytes / table.geometry.page_bytes + 2) * table.geometry.page_bytes +
                                        2 * std::max(images_.offset_alignment, kReadAlignment));
}

RowBuffer::~RowBuffer() { cancel(); }

int64_t RowBuffer::staging_bytes(int64_t images, const BufferOptions& options) {
  return images * fitting_depth(options) * options.max_read;
}

void RowBuffer::expect_own() const {
  if (owner_ != 0 && owner_ != getpid()) throw inherited_error();
}

void RowBuffer::begin(int64_t window, int64_t horizon, int64_t gap, bool growing) {
  expect_own();
  TIERING_EXPECT(readers_.empty(), "an epoch is under way");
  plan_.set_window(window, horizon, growing);
  most_waiting_ = window + horizon + 1;
  gap_ = gap;
  {
    const std::lock_guard lock(mutex_);
    running_ = true;
    error_ = nullptr;
    bad_page_ = kNoPage;
    added_ = released_ = 0;
    released_early_.clear();
    ended_ = false;
    owner_ = getpid();
  }
  for (uint32_t image = 0; image < images_.images.size(); ++image) readers_.emplace_back([this, image] { run(image); });
  if (!std::exchange(touched_, true)) readers_.emplace_back([this] { touch_arena(); });
}

/// Lets the kernel give the arena its pages ahead of the readers, who come to its slots in order at first: the first
/// touch takes as long as the copy into them.
void RowBuffer::touch_arena() {
  constexpr int64_t kStep = 4 << 20;
  constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE of kernel 5.14; by value, because headers may be older
  for (int64_t at = 0; at < plan_.arena_bytes(); at += kStep) {
    {
      const std::lock_guard lock(mutex_);
      if (!running_) return;
    }
    const auto bytes = static_cast<size_t>(std::min(kStep, plan_.arena_bytes() - at));
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
    Reader reader(*this, RowReads(rows_, image, rules), image);
    const EngineOptions engine{.depth = fitting_depth(options_),
                               .max_read = static_cast<uint32_t>(options_.max_read),
                               .kept_from_forks = true};
    auto read_all = [&](const std::string& name) {
      const auto made = make_engine(name, images_, engine);
      made->start({}, reader);
      made->finish();
    };
    try {
      read_all(engine_name());
    } catch (const RingError& error) {
      if (options_.engine != "auto") throw;
      {
        const std::lock_guard lock(mutex_);
        fallback_ = error.what();
        engine_name_ = "threads";
      }
      reader.restart();
      read_all("threads");
    }
  } catch (...) {
    fail(std::current_exception());
  }
}

/// Tells everybody of an error; the first one counts.
void RowBuffer::fail(std::exception_ptr error) noexcept {
  const std::lock_guard lock(mutex_);
  if (!error_) error_ = std::move(error);
  changed_->notify_all();
}

/// An image has come to the end of a round. The mutex is held.
void RowBuffer::finish_part(Flight& flight, const std::unique_lock<std::mutex>&) {
  if (--flight.parts == 0) mark_done(flight);
}

/// The mutex is held.
void RowBuffer::mark_done(Flight& flight) {
  flight.done = true;
  ++changes_;
  changed_->notify_all();
}

/// Plans what can be planned. `planning_` is held.
void RowBuffer::plan_rounds() {
  while (plan_.ready()) {
    {
      std::unique_lock lock(mutex_);
      auto unread = [&] { return std::count_if(flights_.begin(), flights_.end(), [](auto& f) { return !f->done; }); };
      if (!running_ || error_ || unread() >= kRoundsAhead) return;
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
    changed_->notify_all();
  }
}

/// Plans until `enough()`, waiting for readers. False: cancelled, or readers met an error.
template <typename Enough>
bool RowBuffer::plan_until(std::unique_lock<std::mutex>& planning, Enough&& enough) {
  for (;;) {
    int64_t seen;
    {
      const std::lock_guard lock(mutex_);
      if (!running_ || error_) return false;
      seen = changes_;
    }
    plan_rounds();
    if (enough()) return true;
    planning.unlock();
    {
      std::unique_lock lock(mutex_);
      changed_->wait(lock, [&] { return !running_ || error_ || changes_ != seen; });
    }
    planning.lock();
  }
}

bool RowBuffer::add(std::vector<uint32_t> rows) {
  expect_own();
  std::unique_lock planning(planning_);
  if (!plan_until(planning, [&] { return plan_.waiting() < most_waiting_; })) return false;
  const auto taken = static_cast<int64_t>(rows.size());
  plan_.add(std::move(rows));
  plan_rounds();
  const std::lock_guard lock(mutex_);
  ++added_;
  counters_.rows += taken;
  return true;
}

bool RowBuffer::end() {
  expect_own();
  std::unique_lock planning(planning_);
  plan_.end();
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_->notify_all();
  }
  return plan_until(planning, [&] { return plan_.waiting() == 0; });
}

std::span<const uint32_t> RowBuffer::wait(int64_t batch) {
  expect_own();
  std::unique_lock lock(mutex_);
  const int64_t number = base_ + batch, start = now();
  for (;;) {
    if (error_) std::rethrow_exception(error_);
    TIERING_EXPECT(running_, "the epoch was ended");
    TIERING_EXPECT(batch >= released_ && !released_early_.contains(batch) && !(ended_ && batch >= added_),
                   "batch " + std::to_string(batch) + ": expected one of " + std::to_string(released_) + ".." +
                       std::to_string(added_ - 1));
    for (const auto& flight : flights_) {
      if (!flight->done) break;  // rounds before bring rows, too, that the batch finds in the buffer
      if (number >= flight->round.last) continue;
      counters_.wait_nanoseconds += now() - start;
      return flight->round.batch_slots[static_cast<size_t>(number - flight->round.first)];
    }
    changed_->wait(lock);
  }
}

void RowBuffer::release(int64_t batch) {
  const std::lock_guard lock(mutex_);
  released_early_.insert(batch);
  while (released_early_.erase(released_) > 0) ++released_;
  for (const auto& flight : flights_)
    if (const int64_t at = base_ + batch - flight->round.first; at >= 0 && base_ + batch < flight->round.last)
      flight->round.batch_slots[static_cast<size_t>(at)] = {};
  while (!flights_.empty() && flights_.front()->done && flights_.front()->round.last <= base_ + released_)
    flights_.pop_front();
  ++counters_.batches;
  ++changes_;
  changed_->notify_all();
}

void RowBuffer::stop() noexcept {
  if (owner_ != getpid()) return;  // no epoch, or a fork, in which somebody may hold the mutex for ever
  const std::lock_guard lock(mutex_);
  running_ = false;
  changed_->notify_all();
}

void RowBuffer::cancel() noexcept {
  if (owner_ != getpid()) {
    if (readers_.empty()) return;
    // A fork, in which the readers do not exist: their handles may be those of other threads by now, and to destroy what
    // they wait for would be to wait for them.
    static_cast<void>(new (std::nothrow) std::vector<std::thread>(std::move(readers_)));
    static_cast<void>(changed_.release());
    return;
  }
  const std::lock_guard ending(ending_);
  if (readers_.empty()) return;
  stop();
  for (std::thread& reader : readers_) reader.join();
  readers_.clear();
  const std::lock_guard planning(planning_);
  const std::lock_guard lock(mutex_);
  for (; !flights_.empty(); flights_.pop_back())
    if (!flights_.back()->done || error_) plan_.forget(flights_.back()->round);
  plan_.drop_waiting();
  base_ = plan_.first();
}

BufferCounters RowBuffer::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

void RowBuffer::reset_counters() {
  const std::lock_guard lock(mutex_);
  counters_ = {};
}

std::string RowBuffer::engine_name() const {
  const std::lock_guard lock(mutex_);
  return engine_name_;
}

std::string RowBuffer::fallback() const {
  const std::lock_guard lock(mutex_);
  return fallback_;
}

int64_t RowBuffer::bad_page() const {
  const std::lock_guard lock(mutex_);
  return bad_page_;
}

}  // namespace tiering
