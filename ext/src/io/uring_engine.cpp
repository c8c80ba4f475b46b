// The io_uring engine: one ring per reader, `depth` reads in flight, refilled as completions are reaped.
//
// Each read in flight owns a slot; the slot has a buffer for reads that cannot land in their target directly. A short
// read is put back with its remainder; after an error nothing new is submitted, what is in flight is awaited, and
// finish() throws. Nothing runs in the background: the caller's thread submits and reaps (start, poll, finish). A ring
// that the kernel refuses, and one that a forked child inherits, is given up; the next batch sets up a new one.
#include <liburing.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <exception>
#include <optional>
#include <system_error>
#include <thread>
#include <tiering/io/read_engine.hpp>
#include <utility>
#include <vector>

namespace tiering {
namespace {

// Flags of kernel 5.19: completions are handed over at the next system call instead of by an interrupt to
// this thread, and the ring says when some wait. By value, because liburing's headers may be older.
constexpr unsigned kCoopTaskrun = 1U << 8;
constexpr unsigned kTaskrunFlag = 1U << 9;

// Bytes in flight into the engine's buffers: enough for the bandwidth of any one disk, and few enough that the buffers,
// of which those used last are used next, stay in the processor's cache.
constexpr size_t kMostBytes = 8 << 20;

std::string explain(int code) {
  const std::string text = std::generic_category().message(code);
  switch (code) {
    case ENOSYS:
      return "the kernel has no io_uring (" + text + ")";
    case EPERM:
    case EACCES:
      return "io_uring is forbidden here, by a container's seccomp profile or by sysctl "
             "kernel.io_uring_disabled (" +
             text + ")";
    case EMFILE:
    case ENFILE:
      return "no file descriptor is left for the ring: raise `ulimit -n` (" + text + ")";
    case ENOMEM:
      return "no memory for the ring: raise `ulimit -l` or use a smaller depth (" + text + ")";
    default:
      return "io_uring: " + text;
  }
}

class Ring {
 public:
  explicit Ring(unsigned depth) {
    int code = io_uring_queue_init(depth, &ring_, kCoopTaskrun | kTaskrunFlag);
    if (code == -EINVAL) code = io_uring_queue_init(depth, &ring_, 0);
    if (code < 0) throw RingError(-code, explain(-code));
  }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;
  ~Ring() { io_uring_queue_exit(&ring_); }
  io_uring* get() noexcept { return &ring_; }

 private:
  io_uring ring_{};
};

class UringEngine final : public ReadEngine {
 public:
  UringEngine(const ImageSet& images, const EngineOptions& options)
      : images_(images),
        buffers_(static_cast<size_t>(options.depth) * options.max_read, options.kept_from_forks),
        max_read_(options.max_read),
        slots_(static_cast<size_t>(options.depth)) {
    free_.reserve(slots_.size());
    again_.reserve(slots_.size());
    new_ring();
  }

  bool register_buffers(std::span<const std::span<std::byte>> buffers) override {
    if (!ours()) new_ring();
    if (!registered_.empty()) io_uring_unregister_buffers(ring_->get());
    registered_.clear();
    std::vector<iovec> vectors;
    for (const auto& buffer : buffers) vectors.push_back({buffer.data(), buffer.size()});
    if (vectors.empty() ||
        io_uring_register_buffers(ring_->get(), vectors.data(), static_cast<unsigned>(vectors.size())) != 0)
      return false;
    registered_.assign(buffers.begin(), buffers.end());
    return true;
  }

  ~UringEngine() override { abandon(); }

  const char* name() const noexcept override { return "io_uring"; }

  void start(std::span<const Read> reads, ReadSink& sink) override {
    reads_ = reads;
    sink_ = &sink;
    next_ = base_ = 0;
    busy_ = true;
    closed_ = false;
    error_ = nullptr;
    refusals_ = 0;
    refused_ = false;
    again_.clear();
    free_.clear();
    for (size_t s = slots_.size(); s-- > 0;) free_.push_back(static_cast<uint32_t>(s));
    if (!ours()) new_ring();
    fill();
    submit(0);
  }

  void poll() noexcept override {
    if (in_flight_ == 0) return;
    reap();
    if (!refused_ && fill() > 0) submit(0);  // finish() pauses after a refusal
  }

  void finish() override {
    const bool inherited = busy_ && owner_ != getpid();
    drain();
    busy_ = false;
    if (inherited) throw inherited_error();
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

  void abandon() noexcept override {
    closed_ = true;
    for (; !again_.empty(); again_.pop_back()) release(again_.back());
    drain();
    busy_ = false;
    error_ = nullptr;
  }

 private:
  struct Slot {
    Read read{};
    size_t index = 0;
    uint32_t done = 0;
    int refusals = 0;
  };

  bool ours() const noexcept { return ring_ && owner_ == getpid(); }

  /// What a child inherited is its copy of the descriptor and of the mapping: giving it back leaves the parent's alone.
  void new_ring() {
    in_flight_ = bytes_ = 0;
    registered_.clear();
    ring_.reset();
    ring_.emplace(static_cast<unsigned>(slots_.size()));
    owner_ = getpid();
  }

  void drain() noexcept {
    if (!ours()) {
      in_flight_ = bytes_ = 0;  // the parent's
      return;
    }
    fill();
    while (in_flight_ > 0 && submit(1)) {
      reap();
      if (std::exchange(refused_, false)) pause_after_refusal();
      fill();
    }
  }

  /// Ends with nothing in flight and no ring. What the kernel has taken arrives without being asked for: io_uring_enter
  /// is what it refuses. What it has not taken never begins.
  void give_up(int code) noexcept {
    const std::string reason = refusals_ < kMaxRefusals ? explain(code)
                                                        : "io_uring took nothing in " + std::to_string(kMaxRefusals) +
                                                              " tries more: use a smaller depth (" +
                                                              std::generic_category().message(code) + ")";
    error_ = std::make_exception_ptr(RingError(code, reason));
    closed_ = true;
    while (in_flight_ > again_.size() + io_uring_sq_ready(ring_->get())) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      reap();
    }
    in_flight_ = bytes_ = 0;
    ring_.reset();
  }

  std::byte* target(uint32_t s) const noexcept {
    const Read& read = slots_[s].read;
    return read.into != nullptr ? read.into : buffers_.data() + size_t{s} * max_read_;
  }

  /// Bytes of a slot's read that come into its buffer.
  size_t own_bytes(uint32_t s) const noexcept {
    const Read& read = slots_[s].read;
    return read.into == nullptr ? read.bytes : 0;
  }

  /// Prepares reads (remainders of short ones first) while slots are free; returns how many.
  int fill() noexcept {
    int prepared = 0;
    while (!again_.empty()) {
      prepare(again_.back());
      again_.pop_back();
      ++prepared;
    }
    while (!closed_ && !free_.empty() && bytes_ < kMostBytes) {
      if (next_ == reads_.size()) {
        base_ += next_;
        next_ = 0;
        reads_ = sink_->more(in_flight_ == 0);
        if (reads_.empty()) break;
      }
      const uint32_t s = free_.back();
      free_.pop_back();
      slots_[s] = Slot{reads_[next_], base_ + next_};
      ++next_;
      prepare(s);
      bytes_ += own_bytes(s);
      ++in_flight_;
      ++prepared;
    }
    return prepared;
  }

  void prepare(uint32_t s) noexcept {
    const Slot& slot = slots_[s];
    const Read& read = slot.read;
    // Never null: the ring has as many entries as there are slots, and every fill is followed by a submit.
    io_uring_sqe* sqe = io_uring_get_sqe(ring_->get());
    const int fd = images_.images[read.image].fd();
    std::byte* const into = target(s) + slot.done;
    const uint32_t bytes = read.bytes - slot.done;
    const uint64_t offset = static_cast<uint64_t>(read.offset) + slot.done;
    if (const int buffer = registered_buffer(into, bytes); buffer >= 0)
      io_uring_prep_read_fixed(sqe, fd, into, bytes, offset, buffer);
    else
      io_uring_prep_read(sqe, fd, into, bytes, offset);
    sqe->user_data = s;
  }

  /// The registered buffer that holds [into, into + bytes), or -1. There are few of them.
  int registered_buffer(const std::byte* into, uint32_t bytes) const noexcept {
    for (size_t b = 0; b < registered_.size(); ++b) {
      const auto& buffer = registered_[b];
      if (into >= buffer.data() && into + bytes <= buffer.data() + buffer.size()) return static_cast<int>(b);
    }
    return -1;
  }

  /// Submits what is prepared and waits for `wait` completions. False: the ring was given up.
  bool submit(unsigned wait) noexcept {
    for (;;) {
      const int code = io_uring_submit_and_wait(ring_->get(), wait);
      if (code == -EINTR) continue;
      if (code >= 0) refusals_ = 0;
      if (code >= 0) return true;
      // EAGAIN and EBUSY: the kernel is short of memory or the completion queue is full; reaping helps both, and time.
      if ((code != -EAGAIN && code != -EBUSY) || refusals_ == kMaxRefusals) {
        give_up(-code);
        return false;
      }
      if (wait > 0) {
        ++refusals_;
        refused_ = true;
      }
      return true;
    }
  }

  void reap() noexcept {
    io_uring_cqe* cqes[64];
    for (;;) {
      const unsigned count = io_uring_peek_batch_cqe(ring_->get(), cqes, 64);
      for (unsigned i = 0; i < count; ++i) complete(static_cast<uint32_t>(cqes[i]->user_data), cqes[i]->res);
      io_uring_cq_advance(ring_->get(), count);
      if (count < 64) return;
    }
  }

  void complete(uint32_t s, int result) noexcept {
    Slot& slot = slots_[s];
    const Read& read = slot.read;
    const ImageFile& image = images_.images[read.image];
    try {
      if (result == -EINTR) return retry(s);
      if (result == -EAGAIN && ++slot.refusals <= kMaxRefusals) {
        refused_ = true;
        return retry(s);
      }
      refusals_ = 0;
      if (result < 0) throw read_error(image, read, slot.done, -result);
      slot.done = advance_read(image, read, slot.done, static_cast<uint32_t>(result));
      if (slot.done < read.need) return retry(s);
      sink_->ready(slot.index, target(s));
    } catch (...) {
      if (!error_) error_ = std::current_exception();
      closed_ = true;  // nothing new after an error
    }
    release(s);
  }

  void retry(uint32_t s) noexcept {
    if (error_)
      release(s);
    else
      again_.push_back(s);
  }

  void release(uint32_t s) noexcept {
    free_.push_back(s);
    bytes_ -= own_bytes(s);
    --in_flight_;
  }

  const ImageSet& images_;
  std::optional<Ring> ring_;  ///< none once the kernel has refused it
  pid_t owner_ = 0;           ///< process that set it up
  AlignedBuffer buffers_;
  size_t max_read_;
  std::vector<std::span<std::byte>> registered_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_;   ///< slots without a read
  std::vector<uint32_t> again_;  ///< slots whose read must be submitted again
  std::span<const Read> reads_;
  ReadSink* sink_ = nullptr;
  size_t next_ = 0;       ///< first of them not yet begun
  size_t base_ = 0;       ///< reads that the sink gave before them
  bool busy_ = false;     ///< from start() to the end of finish() or abandon()
  bool closed_ = true;    ///< nothing new is begun
  size_t in_flight_ = 0;  ///< reads begun and not ended
  size_t bytes_ = 0;      ///< of these, in buffers of the slots
  int refusals_ = 0;      ///< of the ring since it last took or ended something
  bool refused_ = false;  ///< something is to be tried again, after a pause
  std::exception_ptr error_;
};

}  // namespace

std::string uring_unavailable() {
  class : public ReadSink {
    void ready(size_t, const std::byte*) noexcept override {}
  } nobody;
  const int fd = memfd_create("tiering-probe", MFD_CLOEXEC);
  std::string reason;
  try {
    if (fd < 0 || ftruncate(fd, 8) != 0) throw RingError(errno, explain(errno));
    const ImageSet images = ImageSet::of(ImageFile("probe", fd, 1));
    UringEngine engine(images, {.depth = 4, .max_read = 8});
    const Read read{0, 8, 8, 0, nullptr};
    engine.start({&read, 1}, nobody);
    engine.finish();
  } catch (const IoError& error) {
    reason = error.what();
  }
  if (fd >= 0) close(fd);
  return reason;
}

std::unique_ptr<ReadEngine> make_uring_engine(const ImageSet& images, const EngineOptions& options) {
  return std::make_unique<UringEngine>(images, options);
}

}  // namespace tiering
