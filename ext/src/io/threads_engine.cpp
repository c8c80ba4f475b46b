// Threads that each block in pread: works wherever files can be read. A read in flight holds a thread of the pool that
// all readers of the process share; engines take turns, one or a few reads at a time.
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <numeric>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <tiering/errors.hpp>
#include <tiering/io/read_engine.hpp>
#include <utility>
#include <vector>

namespace tiering {
namespace {

class ThreadsEngine;

/// The threads that block in reads: one pool for the whole process. They start when there is work for them, up to a limit,
/// and stay. A forked child has a pool of its own.
class ReadPool {
 public:
  static constexpr size_t kMaxThreads = 128;

  static ReadPool& of_this_process();

  /// Lets so many threads more each take a read of an engine, and another one as long as there are some. The mutex is
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
      : images_(images),
        most_(std::min(static_cast<size_t>(options.depth), ReadPool::kMaxThreads)),
        max_read_(options.max_read),
        buffers_(most_ * max_read_, options.kept_from_forks) {}

  ~ThreadsEngine() override { abandon(); }

  const char* name() const noexcept override { return "threads"; }

  void start(std::span<const Read> reads, ReadSink& sink) override {
    owner_ = getpid();
    sink_ = &sink;
    reads_ = {};
    next_ = base_ = 0;
    wanted_ = in_flight_ = ended_ = 0;
    free_.resize(most_);
    std::iota(free_.begin(), free_.end(), size_t{0});
    failed_ = false;
    error_ = nullptr;
    const std::lock_guard lock(ReadPool::of_this_process().mutex);
    take(reads);
  }

  void finish() override {
    if (sink_ == nullptr) return;
    if (owner_ != getpid()) {
      forget();
      throw inherited_error();
    }
    try {
      read_all();
    } catch (...) {
      abandon();
      throw;
    }
    forget();
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

  void abandon() noexcept override {
    if (sink_ != nullptr && owner_ == getpid()) {
      ReadPool& pool = ReadPool::of_this_process();
      std::unique_lock lock(pool.mutex);
      failed_ = true;  // nothing new is begun
      pool.change.wait(lock, [this] { return in_flight_ == 0; });
      pool.remove(*this);
    }
    forget();
  }

 private:
  friend class ReadPool;

  static constexpr size_t kManyRounds = 4;  ///< turns of all threads that reads have to last for
  static constexpr size_t kMostAtOnce = 8;  ///< reads that a thread takes in a turn then

  /// Reads that a thread does, one after the other.
  struct Begun {
    std::array<Read, kMostAtOnce> reads;  ///< copied: the sink may give others before these have ended
    size_t count;
    size_t index;  ///< of the first
    size_t buffer;
  };

  /// Goes on with `reads` once all before have begun. The pool's mutex is held.
  void take(std::span<const Read> reads) {
    base_ += reads_.size();
    reads_ = reads;
    next_ = 0;
    const size_t threads = std::min(reads.size(), most_ - wanted_);
    if (threads == 0) return;
    ReadPool::of_this_process().add(*this, threads);
    wanted_ += threads;
  }

  /// Keeps reads in flight until the sink has no more and none is under way, or one has failed.
  void read_all() {
    constexpr size_t kNotAsked = ~size_t{0};
    ReadPool& pool = ReadPool::of_this_process();
    std::unique_lock lock(pool.mutex);
    for (size_t asked = kNotAsked;;) {
      // `asked`: reads that had ended when the sink had no more.
      pool.change.wait(lock, [&] {
        return failed_ ? in_flight_ == 0 : next_ == reads_.size() && in_flight_ < most_ && ended_ != asked;
      });
      if (failed_) break;
      asked = ended_;
      const bool none = in_flight_ == 0;
      lock.unlock();
      const std::span<const Read> more = sink_->more(none);
      lock.lock();
      if (!more.empty()) {
        take(more);
        asked = kNotAsked;
      } else if (none) {
        break;
      }
    }
    pool.remove(*this);
  }

  void forget() noexcept {
    sink_ = nullptr;
    reads_ = {};
    next_ = 0;
  }

  bool has_more() const noexcept { return !failed_ && next_ < reads_.size(); }

  /// The next read, if there is one, or a few where very many are left: reads from the page cache take no longer than
  /// the mutex does. The pool's mutex is held.
  std::optional<Begun> begin() noexcept {
    if (!has_more()) return std::nullopt;
    ++in_flight_;
    const size_t count = std::clamp<size_t>((reads_.size() - next_) / (kManyRounds * most_), 1, kMostAtOnce);
    Begun begun{{}, count, base_ + next_, free_.back()};
    std::copy_n(reads_.begin() + static_cast<std::ptrdiff_t>(next_), count, begun.reads.begin());
    next_ += count;
    free_.pop_back();
    return begun;
  }

  std::exception_ptr carry_out(const Begun& begun) const noexcept {
    for (size_t i = 0; i < begun.count; ++i) {
      const Read& read = begun.reads[i];
      std::byte* const target = read.into != nullptr ? read.into : buffers_.data() + begun.buffer * max_read_;
      try {
        read_extent(images_.images[read.image], read, target);
      } catch (...) {
        return std::current_exception();
      }
      sink_->ready(begun.index + i, target);
    }
    return nullptr;
  }

  /// The pool's mutex is held.
  void end(const Begun& begun, std::exception_ptr error) noexcept {
    --in_flight_;
    ended_ += begun.count;
    free_.push_back(begun.buffer);
    if (!error) return;
    if (!failed_) error_ = std::move(error);
    failed_ = true;
  }

  const ImageSet& images_;
  size_t most_;  ///< reads in flight
  size_t max_read_;
  AlignedBuffer buffers_;     ///< one for each read in flight
  pid_t owner_ = 0;           ///< process whose pool has the batch: a forked child has nothing to wait for
  ReadSink* sink_ = nullptr;  ///< of the batch under way
  // Guarded by the pool's mutex from here on.
  std::span<const Read> reads_;
  size_t next_ = 0;           ///< first of them not yet begun
  size_t base_ = 0;           ///< reads of this batch that the sink gave before these
  size_t wanted_ = 0;         ///< threads that the pool was asked for and that have not left
  size_t in_flight_ = 0;      ///< threads at reads
  size_t ended_ = 0;          ///< reads
  std::vector<size_t> free_;  ///< buffers that are not lent
  bool failed_ = false;
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
    if (const auto begun = engine.begin()) {
      if (!engine.has_more()) change.notify_all();
      lock.unlock();
      std::exception_ptr error = engine.carry_out(*begun);
      lock.lock();
      engine.end(*begun, std::move(error));
    }
    if (engine.has_more()) {
      queue_.push_back(&engine);  // behind those of other engines
    } else {
      --engine.wanted_;
      change.notify_all();
    }
    ++idle_;
  }
}

}  // namespace

std::unique_ptr<ReadEngine> make_threads_engine(const ImageSet& images, const EngineOptions& options) {
  return std::make_unique<ThreadsEngine>(images, options);
}

}  // namespace tiering
