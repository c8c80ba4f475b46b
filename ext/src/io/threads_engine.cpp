// A pool of threads that each block in pread: works wherever files can be read. The number of threads is the
// number of reads in flight, because each holds one.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <tiering/io/read_engine.hpp>
#include <vector>

namespace tiering {
namespace {

constexpr int kMaxWorkers = 128;

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
        max_read_(options.max_read),
        buffers_(size_t(workers_for(options)) * options.max_read) {
    try {
      for (int w = 0; w < workers_for(options); ++w) workers_.emplace_back([this, w] { serve(size_t(w)); });
    } catch (const std::system_error& error) {
      stop();
      throw IoError(error.code().value(), std::string("cannot start reader threads: ") + error.what());
    }
  }

  ~ThreadsEngine() override { stop(); }

  const char* name() const noexcept override { return "threads"; }

  void start(std::span<const Read> reads, ReadSink& sink) override {
    {
      const std::lock_guard lock(mutex_);
      reads_ = reads;
      sink_ = &sink;
      next_.store(0);
      error_ = nullptr;
      active_ = std::min(workers_.size(), reads.size());
      wanted_ = active_;
      ++batch_;
    }
    work_.notify_all();
  }

  void finish() override {
    wait();
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

  void abandon() noexcept override {
    next_.store(reads_.size());  // nothing new is begun
    wait();
    error_ = nullptr;
  }

 private:
  static int workers_for(const EngineOptions& options) { return std::min(options.depth, kMaxWorkers); }

  void wait() {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return active_ == 0; });
    reads_ = {};
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    work_.notify_all();
    for (auto& worker : workers_) worker.join();
  }

  /// Life of worker w: sleep until a batch wants it, read until none is left, say so.
  void serve(size_t w) {
    uint64_t seen = 0;
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        work_.wait(lock, [&] { return stopping_ || (batch_ != seen && w < wanted_); });
        if (stopping_) return;
        seen = batch_;
      }
      read_share(buffers_.data() + w * max_read_);
      const std::lock_guard lock(mutex_);
      if (--active_ == 0) {
        wanted_ = 0;
        done_.notify_all();
      }
    }
  }

  void read_share(std::byte* buffer) noexcept {
    for (size_t i = next_.fetch_add(1); i < reads_.size(); i = next_.fetch_add(1)) {
      const Read& read = reads_[i];
      std::byte* target = read.into != nullptr ? read.into : buffer;
      try {
        read_extent(images_.images[read.image], read, target);
      } catch (...) {
        const std::lock_guard lock(mutex_);
        if (!error_) error_ = std::current_exception();
        next_.store(reads_.size());
        return;
      }
      sink_->ready(i, target);
    }
  }

  const ImageSet& images_;
  size_t max_read_;
  AlignedBuffer buffers_;
  std::vector<std::thread> workers_;

  std::mutex mutex_;
  std::condition_variable work_, done_;
  bool stopping_ = false;
  uint64_t batch_ = 0;
  size_t wanted_ = 0;  ///< workers [0, wanted_) serve the batch
  size_t active_ = 0;  ///< of these, how many have not ended yet
  std::exception_ptr error_;
  std::span<const Read> reads_;
  ReadSink* sink_ = nullptr;
  std::atomic<size_t> next_{0};
};

}  // namespace

std::unique_ptr<ReadEngine> make_threads_engine(const ImageSet& images, const EngineOptions& options) {
  return std::make_unique<ThreadsEngine>(images, options);
}

}  // namespace tiering
