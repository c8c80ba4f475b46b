// Threads that each block in pread: works wherever files can be read. A read in flight holds a thread of the pool that
// all readers of the process share.
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <tiering/errors.hpp>
#include <tiering/io/read_engine.hpp>
#include <utility>

namespace tiering {
namespace {

class ThreadsEngine;

/// The threads that block in reads: one pool for the whole process. They start when there is work for them, up to a limit,
/// and stay. A forked child has a pool of its own.
class ReadPool {
 public:
  static constexpr size_t kMaxThreads = 128;

  static ReadPool& of_this_process();

  /// Lets up to `threads` threads take shares of a batch. Throws IoError if the process has no thread and gets none.
  void add(ThreadsEngine& batch, size_t threads);
  /// Blocks until every share that was taken is done; all must be taken by then.
  void wait(ThreadsEngine& batch) noexcept;

 private:
  void start_threads();
  void run();

  std::mutex mutex_;
  std::condition_variable wanted_, done_;
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
  while (done < read.need) {
    const ssize_t got = pread(image.fd(), buffer + done, read.bytes - done, read.offset + done);
    if (got < 0) {
      if (errno == EINTR || errno == EAGAIN) continue;
      throw read_error(image, read, done, errno);
    }
    done = advance_read(image, read, done, static_cast<uint32_t>(got));
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
    sink_ = &sink;
    base_ = 0;
    failed_ = false;
    error_ = nullptr;
    owner_ = getpid();
    begin(reads);
  }

  void finish() override {
    const bool inherited = !reads_.empty() && owner_ != getpid();
    for (wait(); !failed_ && !inherited; wait()) {
      const auto reads = sink_->more(true);
      if (reads.empty()) break;
      begin(reads);
    }
    if (inherited) throw inherited_error();
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

  void abandon() noexcept override {
    failed_ = true;  // nothing new is begun
    wait();
  }

 private:
  friend class ReadPool;

  void begin(std::span<const Read> reads) {
    reads_ = reads;
    next_ = 0;
    buffers_lent_ = 0;
    if (!reads.empty()) ReadPool::of_this_process().add(*this, std::min(reads.size(), most_));
  }

  void wait() noexcept {
    if (!reads_.empty() && owner_ == getpid()) ReadPool::of_this_process().wait(*this);
    base_ += reads_.size();
    reads_ = {};
  }

  /// Whether all shares were taken; from then on it stays so.
  bool all_taken() const noexcept { return failed_ || next_ >= reads_.size(); }

  /// Takes shares until none is left. Several threads at once.
  void take_shares() noexcept {
    std::byte* const buffer = buffers_.data() + buffers_lent_.fetch_add(1) * max_read_;
    while (!failed_) {
      const size_t i = next_.fetch_add(1);
      if (i >= reads_.size()) return;
      const Read& read = reads_[i];
      std::byte* const target = read.into != nullptr ? read.into : buffer;
      try {
        read_extent(images_.images[read.image], read, target);
        sink_->ready(base_ + i, target);
      } catch (...) {
        if (!failed_.exchange(true)) error_ = std::current_exception();
      }
    }
  }

  const ImageSet& images_;
  size_t most_;  ///< reads in flight
  size_t max_read_;
  AlignedBuffer buffers_;  ///< one for each read in flight
  pid_t owner_ = 0;        ///< process whose pool has the batch: a forked child has nothing to wait for
  std::span<const Read> reads_;
  ReadSink* sink_ = nullptr;
  size_t base_ = 0;  ///< reads of this batch that the sink gave before these
  std::atomic<size_t> next_{0};
  std::atomic<size_t> buffers_lent_{0};
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;
  size_t busy_ = 0;  ///< threads in take_shares(); guarded by the pool's mutex
};

ReadPool& ReadPool::of_this_process() {
  ReadPool* pool = the_pool.load();
  if (pool != nullptr) return *pool;
  auto* made = new ReadPool;
  if (the_pool.compare_exchange_strong(pool, made)) return *made;
  delete made;  // another thread was first; no thread of this one has started
  return *pool;
}

void ReadPool::add(ThreadsEngine& batch, size_t threads) {
  {
    const std::lock_guard lock(mutex_);
    if (refused != 0) throw IoError(refused, "no memory to prepare reader threads for forks");
    batch.busy_ = 0;  // a forked child may have inherited a batch under way
    queue_.insert(queue_.end(), std::min(threads, kMaxThreads), &batch);
    try {
      start_threads();
    } catch (const std::system_error& error) {
      if (threads_ == 0) {
        std::erase(queue_, &batch);
        throw IoError(error.code().value(), std::string("cannot start reader threads: ") + error.what());
      }  // else those that run do it all
    }
  }
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
  for (std::unique_lock lock(mutex_);;) {
    wanted_.wait(lock, [this] { return !queue_.empty(); });
    ThreadsEngine& batch = *queue_.front();
    queue_.pop_front();
    --idle_;
    ++batch.busy_;
    lock.unlock();
    batch.take_shares();
    lock.lock();
    ++idle_;
    if (--batch.busy_ == 0) done_.notify_all();
  }
}

void ReadPool::wait(ThreadsEngine& batch) noexcept {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return batch.all_taken() && batch.busy_ == 0; });
  std::erase(queue_, &batch);
}

}  // namespace

std::unique_ptr<ReadEngine> make_threads_engine(const ImageSet& images, const EngineOptions& options) {
  return std::make_unique<ThreadsEngine>(images, options);
}

}  // namespace tiering
