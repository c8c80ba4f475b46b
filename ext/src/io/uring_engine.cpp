// The io_uring engine: one ring per reader, `depth` reads in flight, refilled as completions are reaped.
//
// A slot has a buffer for reads that cannot land in their target directly. A short read is put back with its remainder.
// Nothing runs in the background: the caller's thread submits and reaps. A ring that the kernel refuses, and one that a
// forked child inherits, is given up; the next batch sets up a new one.
#include <liburing.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <optional>
#include <thread>
#include <tiering/io/read_engine.hpp>

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
      : ReadEngine(images, static_cast<size_t>(options.depth), kMostBytes),
        buffers_(static_cast<size_t>(options.depth) * options.max_read, options.kept_from_forks),
        max_read_(options.max_read) {
    renew();
  }

  ~UringEngine() override { abandon(); }

  const char* name() const noexcept override { return "io_uring"; }

  bool register_buffers(std::span<const std::span<std::byte>> buffers) override {
    renew();
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

 private:
  /// A child inherits a copy of the descriptor and of the mapping: closing it leaves the parent's ring alone.
  void renew() override {
    refusals_ = 0;
    refused_ = false;
    if (ring_ && maker_ == getpid()) return;
    registered_.clear();
    ring_.reset();
    ring_.emplace(static_cast<unsigned>(slots_.size()));
    maker_ = getpid();
  }

  void begin(uint32_t s) noexcept override {
    const Slot& slot = slots_[s];
    // Never null: the ring has as many entries as there are slots.
    io_uring_sqe* sqe = io_uring_get_sqe(ring_->get());
    std::byte* const into = target(s) + slot.done;
    const uint32_t bytes = slot.read.bytes - slot.done;
    const uint64_t offset = static_cast<uint64_t>(slot.read.offset) + slot.done;
    if (const int buffer = registered_buffer(into, bytes); buffer >= 0)
      io_uring_prep_read_fixed(sqe, image(slot).fd(), into, bytes, offset, buffer);
    else
      io_uring_prep_read(sqe, image(slot).fd(), into, bytes, offset);
    sqe->user_data = s;
  }

  void reap(bool wait) override {
    if (!ring_ || (!wait && refused_)) return;  // a batch that waits pauses after a refusal
    if (std::exchange(refused_, false)) pause_after_refusal();
    if ((wait || io_uring_sq_ready(ring_->get()) > 0) && !submit(wait ? 1 : 0)) return;
    reap_ended();
  }

  std::byte* target(uint32_t s) const noexcept {
    const Read& read = slots_[s].read;
    return read.into != nullptr ? read.into : buffers_.data() + size_t{s} * max_read_;
  }

  /// The registered buffer that holds [into, into + bytes), or -1. There are few of them.
  int registered_buffer(const std::byte* into, uint32_t bytes) const noexcept {
    for (size_t b = 0; b < registered_.size(); ++b) {
      const auto& buffer = registered_[b];
      if (into >= buffer.data() && into + bytes <= buffer.data() + buffer.size()) return static_cast<int>(b);
    }
    return -1;
  }

  /// Submits what is queued and waits for `wait` completions. False: the ring was given up.
  bool submit(unsigned wait) noexcept {
    for (;;) {
      const int code = io_uring_submit_and_wait(ring_->get(), wait);
      if (code == -EINTR) continue;
      if (code >= 0) {
        refusals_ = 0;
        return true;
      }
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

  /// Ends with nothing in flight and no ring. What the kernel has taken arrives without being asked for: io_uring_enter
  /// is what it refuses. What it has not taken never begins.
  void give_up(int code) noexcept {
    const std::string reason = refusals_ < kMaxRefusals ? explain(code)
                                                        : "io_uring took nothing in " + std::to_string(kMaxRefusals) +
                                                              " more tries: use a smaller depth (" +
                                                              std::generic_category().message(code) + ")";
    fail(std::make_exception_ptr(RingError(code, reason)));
    while (in_flight() > io_uring_sq_ready(ring_->get())) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      reap_ended();
    }
    forget();
    ring_.reset();
  }

  void reap_ended() noexcept {
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
    try {
      if (result == -EINTR) return retry(s);
      if (result == -EAGAIN && ++slot.refusals <= kMaxRefusals) {
        refused_ = true;
        return retry(s);
      }
      refusals_ = 0;
      if (result < 0) throw read_error(image(slot), slot.read, slot.done, -result);
      slot.done = advance_read(image(slot), slot.read, slot.done, static_cast<uint32_t>(result));
      if (slot.done < slot.read.need) return retry(s);
      sink_->ready(slot.index, target(s));
    } catch (...) {
      fail(std::current_exception());
    }
    release(s);
  }

  void retry(uint32_t s) noexcept {
    if (closed())
      release(s);
    else
      begin(s);
  }

  std::optional<Ring> ring_;  ///< none once the kernel has refused it
  pid_t maker_ = 0;           ///< process that made it
  AlignedBuffer buffers_;     ///< one for each slot
  size_t max_read_;
  std::vector<std::span<std::byte>> registered_;
  int refusals_ = 0;      ///< of the ring since it last took or ended something
  bool refused_ = false;  ///< something is to be tried again, after a pause
};

}  // namespace

std::string uring_unavailable() {
  class : public ReadSink {
    void ready(size_t, const std::byte*) noexcept override {}
  } nobody;
  try {
    const Descriptor file(memfd_create("tiering-probe", MFD_CLOEXEC));
    if (file.get() < 0 || ftruncate(file.get(), 8) != 0) throw RingError(errno, explain(errno));
    const ImageSet images = ImageSet::of(ImageFile("probe", file.get(), 1));
    UringEngine engine(images, {.depth = 4, .max_read = 8});
    const Read read{0, 8, 8, 0, nullptr};
    engine.start({&read, 1}, nobody);
    engine.finish();
    return {};
  } catch (const IoError& error) {
    return error.what();
  }
}

std::unique_ptr<ReadEngine> make_uring_engine(const ImageSet& images, const EngineOptions& options) {
  return std::make_unique<UringEngine>(images, options);
}

}  // namespace tiering
