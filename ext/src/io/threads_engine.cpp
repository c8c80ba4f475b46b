// Threads that each block in pread: works wherever files can be read. A read in flight holds a thread of the pool that
// all readers of the process share.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <exception>
#include <tiering/io/read_engine.hpp>
#include <utility>

#include "read_pool.hpp"

namespace tiering {
namespace {

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

class ThreadsEngine final : public ReadEngine, private SharedWork {
 public:
  ThreadsEngine(const ImageSet& images, const EngineOptions& options)
      : images_(images),
        most_(std::min(static_cast<size_t>(options.depth), ReadPool::kMaxThreads)),
        max_read_(options.max_read),
        buffers_(most_ * max_read_) {}

  ~ThreadsEngine() override { abandon(); }

  const char* name() const noexcept override { return "threads"; }

  void start(std::span<const Read> reads, ReadSink& sink) override {
    reads_ = reads;
    sink_ = &sink;
    next_ = 0;
    buffers_lent_ = 0;
    failed_ = false;
    error_ = nullptr;
    owner_ = getpid();
    ReadPool::of_this_process().add(*this, std::min(reads.size(), most_));
  }

  void finish() override {
    const bool inherited = !reads_.empty() && owner_ != getpid();
    wait();
    if (inherited) throw inherited_error();
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

  void abandon() noexcept override {
    failed_ = true;  // nothing new is begun
    wait();
  }

 private:
  void wait() noexcept {
    if (!reads_.empty() && owner_ == getpid()) ReadPool::of_this_process().wait(*this);
    reads_ = {};
  }

  bool all_taken() const noexcept override { return failed_ || next_ >= reads_.size(); }

  void take_shares() noexcept override {
    std::byte* const buffer = buffers_.data() + buffers_lent_.fetch_add(1) * max_read_;
    while (!failed_) {
      const size_t i = next_.fetch_add(1);
      if (i >= reads_.size()) return;
      const Read& read = reads_[i];
      std::byte* const target = read.into != nullptr ? read.into : buffer;
      try {
        read_extent(images_.images[read.image], read, target);
        sink_->ready(i, target);
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
  std::atomic<size_t> next_{0};
  std::atomic<size_t> buffers_lent_{0};
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;
};

}  // namespace

std::unique_ptr<ReadEngine> make_threads_engine(const ImageSet& images, const EngineOptions& options) {
  return std::make_unique<ThreadsEngine>(images, options);
}

}  // namespace tiering
