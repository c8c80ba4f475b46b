// What engines share: slots, buffers, the rule for short reads, error texts and the table of engines.
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>
#include <tiering/buffer.hpp>
#include <tiering/io/read_engine.hpp>

namespace tiering {

AlignedBuffer::AlignedBuffer(size_t bytes, bool kept_from_forks) : data_(nullptr), bytes_(bytes) {
  if (bytes == 0) return;
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw system_error(errno, "cannot get " + std::to_string(bytes) + " bytes of buffer");
  data_ = static_cast<std::byte*>(mapped);
  if (bytes >= 2 * kHugePageBytes) madvise(mapped, bytes, MADV_HUGEPAGE);  // advice: failure is harmless
  if (kept_from_forks) madvise(mapped, bytes, MADV_DONTFORK);
}

AlignedBuffer::~AlignedBuffer() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

ReadEngine::ReadEngine(const ImageSet& images, size_t slots, size_t lent_bytes)
    : images_(images), slots_(slots), most_lent_(lent_bytes) {
  free_.reserve(slots);
}

bool ReadEngine::owned() const noexcept { return owner_ == getpid(); }

void ReadEngine::start(std::span<const Read> reads, ReadSink& sink) {
  reads_ = reads;
  sink_ = &sink;
  next_ = base_ = 0;
  forget();
  error_ = nullptr;
  free_.clear();
  for (size_t s = slots_.size(); s-- > 0;) free_.push_back(static_cast<uint32_t>(s));
  renew();
  owner_ = getpid();
  closed_ = false;
  busy_ = true;
  fill();
  reap(false);
}

void ReadEngine::poll() noexcept {
  if (in_flight_ == 0) return;
  try {
    reap(false);
    if (fill()) reap(false);
  } catch (...) {
    fail(std::current_exception());
  }
}

void ReadEngine::finish() {
  const bool inherited = busy_ && !owned();
  drain();
  if (inherited) throw inherited_error();
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void ReadEngine::abandon() noexcept {
  closed_ = true;
  drain();
  error_ = nullptr;
}

void ReadEngine::drain() noexcept {
  if (owned() && busy_) {
    fill();
    while (in_flight_ > 0) {
      try {
        reap(true);
      } catch (...) {
        fail(std::current_exception());
      }
      fill();
    }
  }
  forget();  // in a child: what is the parent's
  busy_ = false;
  closed_ = true;
}

/// Begins reads while slots are free; whether there were any.
bool ReadEngine::fill() noexcept {
  bool begun = false;
  while (!closed_ && !free_.empty() && lent_ < most_lent_) {
    if (next_ == reads_.size()) {
      base_ += std::exchange(next_, 0);
      reads_ = sink_->more(in_flight_ == 0);
      if (reads_.empty()) break;
    }
    const uint32_t slot = free_.back();
    free_.pop_back();
    slots_[slot] = Slot{reads_[next_], base_ + next_};
    ++next_;
    ++in_flight_;
    lent_ += lent_bytes(slot);
    begin(slot);
    begun = true;
  }
  return begun;
}

size_t ReadEngine::lent_bytes(uint32_t slot) const noexcept {
  const Read& read = slots_[slot].read;
  return read.into == nullptr ? read.bytes : 0;
}

void ReadEngine::release(uint32_t slot) noexcept {
  free_.push_back(slot);
  lent_ -= lent_bytes(slot);
  --in_flight_;
}

void ReadEngine::fail(std::exception_ptr error) noexcept {
  if (!error_) error_ = std::move(error);
  closed_ = true;
}

void pause_after_refusal() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

uint32_t advance_read(const ImageFile& image, const Read& read, uint32_t done, uint32_t arrived) {
  const uint32_t total = done + arrived;
  if (total >= read.need) return total;
  // A direct read must go on at an aligned place: drop the bytes past the last boundary and read them again.
  const auto align = static_cast<uint32_t>(image.offset_alignment());
  const uint32_t aligned = total / align * align;
  if (arrived == 0 || aligned <= done)
    throw IoError(EIO, image.path() + ": ends at byte " + std::to_string(image.bytes()) + ", but bytes " +
                           std::to_string(read.offset) + " to " + std::to_string(read.offset + read.need) +
                           " were expected: the file was truncated: make it again");
  return aligned;
}

IoError inherited_error() { return IoError(ECHILD, "these reads belong to another process, and this is a fork of it"); }

IoError read_error(const ImageFile& image, const Read& read, uint32_t done, int code) {
  std::string text = image.path() + ": reading " + std::to_string(read.bytes - done) + " bytes at byte " +
                     std::to_string(read.offset + done) + ": " + std::generic_category().message(code);
  if (code == EAGAIN) text += ", also in " + std::to_string(kMaxRefusals) + " more tries: use a smaller depth";
  return IoError(code, text);
}

namespace {

const EngineKind& kind_of(const std::string& name) {
  std::string known = "auto";
  for (const EngineKind& kind : engine_kinds()) {
    if (kind.name == name) return kind;
    known += ", " + kind.name;
  }
  throw InputError("engine: expected one of " + known + ", found '" + name + "'");
}

}  // namespace

#if !TIERING_HAVE_LIBURING
std::string uring_unavailable() {
  return "this build has no io_uring engine because liburing was not found: install liburing-dev and pkg-config, then "
         "reinstall the package";
}

std::unique_ptr<ReadEngine> make_uring_engine(const ImageSet&, const EngineOptions&) {
  throw RingError(ENOSYS, uring_unavailable());
}
#endif

std::vector<EngineKind>& engine_kinds() {
  static std::vector<EngineKind> kinds{
      {"io_uring", make_uring_engine, uring_unavailable},
      {"threads", make_threads_engine, [] { return std::string(); }},
  };
  return kinds;
}

std::unique_ptr<ReadEngine> make_engine(const std::string& name, const ImageSet& images, const EngineOptions& options) {
  TIERING_EXPECT(options.depth >= 1 && options.depth <= 4096, "depth: expected 1 to 4096 reads in flight, found ",
                 options.depth);
  return kind_of(name).make(images, options);
}

EngineChoice::EngineChoice(const std::string& wanted) : automatic_(wanted == "auto") {
  if (!automatic_) {
    name_ = kind_of(wanted).name;
    return;
  }
  for (const EngineKind& kind : engine_kinds()) {
    name_ = kind.name;
    const std::string reason = kind.unavailable();
    if (reason.empty()) return;
    if (fallback_.empty()) fallback_ = reason;
  }
}

std::unique_ptr<ReadEngine> EngineChoice::make(const ImageSet& images, const EngineOptions& options) {
  try {
    return make_engine(name_, images, options);
  } catch (const RingError& error) {
    fall_back(error);
    return make_engine(name_, images, options);
  }
}

void EngineChoice::fall_back(const RingError& error) {
  if (!automatic_) throw error;
  fallback_ = error.what();
  name_ = engine_kinds().back().name;
}

}  // namespace tiering
