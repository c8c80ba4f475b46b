// Threads that each block in pread: works wherever files can be read. A read in progress holds a thread of the pool
// that all readers of the process share; engines take turns, one or a few reads at a time.
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <numeric>
#include <thread>
#include <tiering/io/read_engine.hpp>

namespace tiering {
namespace {

class ThreadsEngine;

/// The threads that block in reads: one pool for the whole process. They start when there is work for them, up to a
/// limit, and stay. A forked child has a pool of its own.
class ReadPool {
 public:
  static constexpr size_t kMaxThreads = 128;

  static ReadPool& of_this_process();

  /// Lets `threads` more threads take reads of an engine, as long as it has any. The mutex is
  /// held. Throws IoError if the process has no thread and gets none.
  void add(ThreadsEngine& engine, size_t threads);
  /// Forgets who was asked for and has not come. The mutex is held.
  void remove(const ThreadsEngine& engine) { std::erase(queue_, &engine); }

  std::mutex mutex;                ///< guards the state of engines, too, because a fork may find an engine's own taken
  std::condition_variable change;  ///< of an engine that somebody waits for

 private:
  void start_threads();
  void run();

  std::condition_variable wanted_;
  std::deque<ThreadsEngine*> queue_;  ///< an entry for each thread that is wanted
  size_t threads_ = 0;
  size_t idle_ = 0;  ///< threads that wait for an entry
};

// Never freed: its threads sleep until the process ends.
std::atomic<ReadPool*> the_pool{nullptr};

// In a child the threads do not exist, and another thread may have held the mutex.
const int refused = pthread_atfork(nullptr, nullptr, [] { the_pool.store(nullptr); });

/// Reads one extent into `buffer`, going on after short reads and signals.
void read_extent(const ImageFile& image, const Read& read, std::byte* buffer) {
  uint32_t done = 0;
  for (int refusals = 0; done < read.need;) {
    const ssize_t got = pread(image.fd(), buffer + done, read.bytes - done, read.offset + done);
    if (got >= 0) {
      done = advance_read(image, read, done, static_cast<uint32_t>(got));
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN || ++refusals > kMaxRefusals) throw read_error(image, read, done, errno);
    pause_after_refusal();
  }
}

class ThreadsEngine final : public ReadEngine {
 public:
  ThreadsEngine(const ImageSet& images, const EngineOptions& options)
      : ReadEngine(images, slots_for(options)),
        most_threads_(std::min(static_cast<size_t>(options.depth), ReadPool::kMaxThreads)),
        max_read_(options.max_read),
        buffers_(most_threads_ * max_read_, options.kept_from_forks) {
    for (auto* list : {&queued_, &waiting_, &ended_}) list->reserve(slots_.size());
    free_buffers_.reserve(most_threads_);
  }

  ~ThreadsEngine() override { abandon(); }

  const char* name() const noexcept override { return "threads"; }

  /// Reads that a thread does, one after the other, into one buffer where they have no target.
  struct Turn {
    std::array<uint32_t, 8> slots;
    size_t count;
    size_t buffer;
  };

  bool has_more() const noexcept { return next_ < waiting_.size(); }

  /// Takes the next read, or a few where very many wait: reads from the page cache take no longer than the mutex does.
  /// The pool's mutex is held.
  Turn begin_turn() noexcept {
    Turn turn{{}, 0, free_buffers_.back()};
    turn.count = std::clamp((waiting_.size() - next_) / kManyReads, size_t{1}, turn.slots.size());
    std::copy_n(waiting_.begin() + static_cast<std::ptrdiff_t>(next_), turn.count, turn.slots.begin());
    next_ += turn.count;
    free_buffers_.pop_back();
    ++busy_threads_;
    return turn;
  }

  std::exception_ptr carry_out(const Turn& turn) const noexcept {
    for (size_t i = 0; i < turn.count; ++i) {
      const Slot& slot = slots_[turn.slots[i]];
      std::byte* const into = slot.read.into != nullptr ? slot.read.into : buffers_.data() + turn.buffer * max_read_;
      try {
        read_extent(image(slot), slot.read, into);
      } catch (...) {
        return std::current_exception();
      }
      sink_->ready(slot.index, into);
    }
    return nullptr;
  }

  /// The thread takes another turn if this is true. The pool's mutex is held.
  bool end_turn(const Turn& turn, std::exception_ptr error) noexcept {
    --busy_threads_;
    free_buffers_.push_back(turn.buffer);
    ended_.insert(ended_.end(), turn.slots.begin(), turn.slots.begin() + static_cast<std::ptrdiff_t>(turn.count));
    if (error && !error_) error_ = std::move(error);
    if (error_) drop_waiting();
    return has_more();
  }

  /// Whether the caller has what it waits for. The pool's mutex is held.
  bool satisfied() const noexcept { return ended_.size() >= wanted_ || (busy_threads_ == 0 && !has_more()); }

  void leave() noexcept { --hired_; }

 private:
  static constexpr size_t kManyReads = 512;  ///< waiting reads for each read of a turn
  static constexpr size_t kNobodyWaits = ~size_t{0};

  /// So many that a chunk of a stream is read without the caller, and that turns of several reads occur.
  static size_t slots_for(const EngineOptions& options) {
    return std::max<size_t>(512, 32 * std::min(static_cast<size_t>(options.depth), ReadPool::kMaxThreads));
  }

  void begin(uint32_t slot) noexcept override { queued_.push_back(slot); }

  /// Waits for a quarter of what is in flight: the rest keeps the threads busy meanwhile.
  void reap(bool wait) override {
    ReadPool& pool = ReadPool::of_this_process();
    std::unique_lock lock(pool.mutex);
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(std::exchange(next_, 0)));
    waiting_.insert(waiting_.end(), queued_.begin(), queued_.end());
    queued_.clear();
    if (closed()) drop_waiting();
    if (const size_t threads = std::min(waiting_.size(), most_threads_ - hired_); threads > 0) try {
        pool.add(*this, threads);
        hired_ += threads;
      } catch (...) {
        drop_waiting();
        throw;
      }
    if (wait) {
      wanted_ = std::max(in_flight() / 4, size_t{1});
      pool.change.wait(lock, [this] { return satisfied(); });
      wanted_ = kNobodyWaits;
    }
    for (const uint32_t slot : ended_) release(slot);
    ended_.clear();
    if (error_) fail(std::exchange(error_, nullptr));
    if (in_flight() == 0) {
      pool.remove(*this);
      hired_ = 0;
    }
  }

  void drop_waiting() noexcept {
    ended_.insert(ended_.end(), waiting_.begin() + static_cast<std::ptrdiff_t>(next_), waiting_.end());
    next_ = waiting_.size();
  }

  void renew() override {
    next_ = hired_ = busy_threads_ = 0;
    for (auto* list : {&queued_, &waiting_, &ended_}) list->clear();
    free_buffers_.resize(most_threads_);
    std::iota(free_buffers_.begin(), free_buffers_.end(), size_t{0});
    error_ = nullptr;
  }

  size_t most_threads_;
  size_t max_read_;
  AlignedBuffer buffers_;         ///< one for each thread that reads
  std::vector<uint32_t> queued_;  ///< slots that the pool does not know yet
  // Guarded by the pool's mutex. The lists never grow beyond what was reserved: a fork may come while one changes.
  std::vector<uint32_t> waiting_;  ///< slots to be read, from `next_` on
  std::vector<uint32_t> ended_;    ///< slots that were read, or given up
  std::vector<size_t> free_buffers_;
  size_t next_ = 0;
  size_t hired_ = 0;              ///< threads that the pool was asked for and that have not left
  size_t busy_threads_ = 0;       ///< of these, at a read
  size_t wanted_ = kNobodyWaits;  ///< ended reads that the caller waits for
  std::exception_ptr error_;
};

ReadPool& ReadPool::of_this_process() {
  ReadPool* pool = the_pool.load();
  if (pool != nullptr) return *pool;
  auto* made = new ReadPool;
  if (the_pool.compare_exchange_strong(pool, made)) return *made;
  delete made;  // another thread was first; no thread of this one has started
  return *pool;
}

void ReadPool::add(ThreadsEngine& engine, size_t threads) {
  if (refused != 0) throw IoError(refused, "no memory to prepare reader threads for forks");
  queue_.insert(queue_.end(), threads, &engine);
  try {
    start_threads();
  } catch (const std::system_error& error) {
    if (threads_ == 0) {
      remove(engine);
      throw IoError(error.code().value(), std::string("cannot start reader threads: ") + error.what());
    }  // else those that run do it all
  }
  if (threads == 1)
    wanted_.notify_one();
  else
    wanted_.notify_all();
}

void ReadPool::start_threads() {
  while (idle_ < queue_.size() && threads_ < kMaxThreads) {
    std::thread([this] { run(); }).detach();
    ++threads_;
    ++idle_;
  }
}

void ReadPool::run() {
  pthread_setname_np(pthread_self(), "tiering-pool");  // for those who look which threads there are
  for (std::unique_lock lock(mutex);;) {
    wanted_.wait(lock, [this] { return !queue_.empty(); });
    ThreadsEngine& engine = *queue_.front();
    queue_.pop_front();
    --idle_;
    bool more = engine.has_more();
    if (more) {
      const auto turn = engine.begin_turn();
      lock.unlock();
      std::exception_ptr error = engine.carry_out(turn);
      lock.lock();
      more = engine.end_turn(turn, std::move(error));
    }
    if (more)
      queue_.push_back(&engine);  // behind those of other engines
    else
      engine.leave();
    if (engine.satisfied()) change.notify_all();
    ++idle_;
  }
}

}  // namespace

std::unique_ptr<ReadEngine> make_threads_engine(const ImageSet& images, const EngineOptions& options) {
  return std::make_unique<ThreadsEngine>(images, options);
}

}  // namespace tiering
