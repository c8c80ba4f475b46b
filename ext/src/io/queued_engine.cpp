#include <unistd.h>

#include <tiering/io/queued_engine.hpp>
#include <utility>

namespace tiering {

QueuedEngine::QueuedEngine(const ImageSet& images, size_t slots, size_t lent_bytes)
    : images_(images), slots_(slots), most_lent_(lent_bytes) {
  free_.reserve(slots);
}

bool QueuedEngine::owned() const noexcept { return owner_ == getpid(); }

void QueuedEngine::start(std::span<const Read> reads, ReadSink& sink) {
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

void QueuedEngine::poll() noexcept {
  if (in_flight_ == 0) return;
  try {
    reap(false);
    if (fill()) reap(false);
  } catch (...) {
    fail(std::current_exception());
  }
}

void QueuedEngine::finish() {
  const bool inherited = busy_ && !owned();
  drain();
  if (inherited) throw inherited_error();
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void QueuedEngine::abandon() noexcept {
  closed_ = true;
  drain();
  error_ = nullptr;
}

void QueuedEngine::drain() noexcept {
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
bool QueuedEngine::fill() noexcept {
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

size_t QueuedEngine::lent_bytes(uint32_t slot) const noexcept {
  const Read& read = slots_[slot].read;
  return read.into == nullptr ? read.bytes : 0;
}

void QueuedEngine::release(uint32_t slot) noexcept {
  free_.push_back(slot);
  lent_ -= lent_bytes(slot);
  --in_flight_;
}

void QueuedEngine::fail(std::exception_ptr error) noexcept {
  if (!error_) error_ = std::move(error);
  closed_ = true;
}

}  // namespace tiering
