// How the controller works: its thread gives an engine what doorbells say is there, and completes what arrives.
//
// Ordering: a doorbell is loaded with acquire before the entries that it tells of; a completion's last word is stored
// with release after the data and its other words. A completion queue without room makes completions wait, not reads.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <tiering/nvme/host_link.hpp>
#include <tiering/nvme/prp.hpp>
#include <tiering/nvme/soft_controller.hpp>
#include <utility>

namespace tiering::nvme {
namespace {

constexpr uint32_t kBusyLooks = 2000;  // looks at doorbells before the thread sleeps between looks
constexpr uint32_t kPollTries = 256;   // looks at reads in flight before the thread sleeps between looks
constexpr auto kPollSleep = std::chrono::microseconds(10);
constexpr auto kLongestSleep = std::chrono::microseconds(200);

/// With reads in flight, the thread sleeps no longer than it may be late with them.
void wait_for_reads(uint32_t tries) {
  if (tries < kPollTries) return HostLink::pause(tries);
  std::this_thread::sleep_for(kPollSleep);
}

/// Without reads for a while, the thread leaves the processor to others: longer and longer, but not for long.
void back_off(uint32_t tries) {
  if (tries < kBusyLooks) return HostLink::pause(tries);
  const auto sleep = std::chrono::microseconds(10) * (1 + (tries - kBusyLooks) / 16);
  std::this_thread::sleep_for(std::min<std::chrono::microseconds>(sleep, kLongestSleep));
}

}  // namespace

class SoftController::Core final : public ReadSink {
 public:
  Core(const ImageFile& image, std::vector<QueuePair> pairs, std::vector<std::span<std::byte>> memory,
       std::vector<std::shared_ptr<void>> owners, const MediumMaker& medium)
      : images_(ImageSet::of(ImageFile(image.path(), image.fd(), image.offset_alignment()))),
        memory_(std::move(memory)),
        owners_(std::move(owners)),
        engine_(medium(images_)),
        block_bytes_(std::max<uint32_t>(kBlockBytes, static_cast<uint32_t>(image.offset_alignment()))),
        bytes_(image.bytes()) {
    for (const QueuePair& pair : pairs) queues_.push_back(Queue{pair, 0, 0, 0, {}});
  }

  uint32_t block_bytes() const noexcept { return block_bytes_; }
  uint64_t blocks() const noexcept { return (static_cast<uint64_t>(bytes_) + block_bytes_ - 1) / block_bytes_; }

  void run() noexcept {
    try {
      while (!stopping_) serve();
    } catch (const std::exception& error) {
      note(error.what());
    } catch (...) {
      note("an unknown error");
    }
    const std::lock_guard lock(state_mutex_);
    ended_ = true;
    end_.notify_all();
  }

  bool stop(std::chrono::nanoseconds patience) noexcept {
    stopping_ = true;
    std::unique_lock lock(state_mutex_);
    return end_.wait_for(lock, patience, [&] { return ended_; });
  }

  std::string trouble() const {
    const std::lock_guard lock(state_mutex_);
    return trouble_;
  }

  bool running() const noexcept {
    const std::lock_guard lock(state_mutex_);
    return !ended_;
  }

  std::span<const Read> more(bool wait) noexcept override;
  void ready(size_t index, const std::byte* data) noexcept override;

  const pid_t owner = getpid();
  std::thread thread;

 private:
  struct Queue {
    QueuePair pair;
    uint32_t fetched;                                     ///< commands taken from the submission queue
    uint32_t completed;                                   ///< completions written
    uint32_t taken;                                       ///< of these, taken by the reader
    std::deque<std::pair<uint16_t, uint32_t>> unwritten;  ///< id and status of completions that there is no room for
  };
  /// A command under way: one read, or one for each run of pages that do not follow each other in memory.
  struct Open {
    uint32_t queue;
    uint16_t id;
    uint32_t reads;
    uint32_t status;
  };
  struct Part {
    Read read{};
    uint32_t open = 0;
    bool arrived = false;
  };

  void serve();
  void read_again(std::deque<Part> parts);
  void fetch();
  uint32_t accept(uint32_t queue, const Command& command);
  uint32_t add_parts(const BlockRead& read, uint32_t open);
  bool allowed(uint64_t address, uint64_t bytes) const noexcept;
  void end_part(Part& part, uint32_t status) noexcept;
  void complete(uint32_t queue, uint16_t id, uint32_t status) noexcept;
  static bool has_room(Queue& queue) noexcept;
  static void write(Queue& queue, uint16_t id, uint32_t status) noexcept;
  static void flush(Queue& queue) noexcept;
  void note(std::string text) noexcept;

  ImageSet images_;
  std::vector<std::span<std::byte>> memory_;
  std::vector<std::shared_ptr<void>> owners_;
  std::unique_ptr<ReadEngine> engine_;
  uint32_t block_bytes_;
  int64_t bytes_;
  std::vector<Read> batch_;
  std::mutex mutex_;  ///< guards what follows: reads may end in several threads
  std::vector<Queue> queues_;
  std::vector<Open> open_;
  std::vector<uint32_t> closed_;  ///< places in `open_` without a command
  std::deque<Part> parts_;        ///< given to the engine, from `first_` on
  size_t first_ = 0;
  size_t arrived_ = 0;     ///< reads that have ended
  bool draining_ = false;  ///< the engine is to come to its end
  std::atomic<bool> stopping_ = false;
  mutable std::mutex state_mutex_;
  std::condition_variable end_;
  bool ended_ = false;
  std::string trouble_;
};

void SoftController::Core::note(std::string text) noexcept {
  const std::lock_guard lock(state_mutex_);
  trouble_ = std::move(text);
}

/// Reads until somebody says stop, or a read fails. An engine says that one failed, but not which: those that have not
/// arrived are then tried one by one.
void SoftController::Core::serve() {
  first_ = 0;
  parts_.clear();
  try {
    draining_ = false;
    engine_->start({}, *this);
    // Doorbells are looked at while reads are in flight, too: an engine that waits in the kernel would not see them.
    bool polled = false;
    for (uint32_t tries = 0; engine_->polls() && !stopping_;) {
      polled = true;
      const size_t before = arrived_;
      engine_->poll();
      tries = arrived_ == before ? tries + 1 : 0;
      wait_for_reads(tries);
    }
    draining_ = polled;  // after an error or a refusal: what is in flight is awaited
    engine_->finish();
  } catch (const IoError& error) {
    note(error.what());
    read_again(std::exchange(parts_, {}));
  }
}

void SoftController::Core::read_again(std::deque<Part> parts) {
  struct Alone final : ReadSink {
    void ready(size_t, const std::byte* from) noexcept override { data = from; }
    const std::byte* data = nullptr;
  };
  for (Part& part : parts) {
    if (part.arrived) continue;
    Alone sink;
    try {
      engine_->start({&part.read, 1}, sink);
      engine_->finish();
    } catch (const IoError& error) {
      note(error.what());
      sink.data = nullptr;
    }
    const std::lock_guard lock(mutex_);
    if (sink.data != nullptr && sink.data != part.read.into) std::memcpy(part.read.into, sink.data, part.read.need);
    end_part(part, sink.data != nullptr ? kSuccess : kUnrecoveredReadError);
  }
}

std::span<const Read> SoftController::Core::more(bool wait) noexcept {
  for (uint32_t tries = 0; !stopping_ && !draining_; ++tries) {
    batch_.clear();
    {
      const std::lock_guard lock(mutex_);
      fetch();
    }
    if (!batch_.empty()) return batch_;
    if (!wait) return {};
    back_off(tries);
  }
  return {};
}

/// Takes what doorbells tell of. The mutex is held.
void SoftController::Core::fetch() {
  for (uint32_t q = 0; q < queues_.size(); ++q) {
    Queue& queue = queues_[q];
    flush(queue);
    const QueuePair& pair = queue.pair;
    const uint32_t tail = HostLink::load_acquire(pair.submit_bell);
    if (tail >= pair.depth) continue;  // no such entry: whoever wrote that waits until it runs out of patience
    while (pair.entry(queue.fetched) != tail) {
      const Command command = pair.commands[pair.entry(queue.fetched)];
      ++queue.fetched;
      if (const uint32_t status = accept(q, command); status != kSuccess) complete(q, id_of(command), status);
    }
  }
}

/// Adds a command's reads to the batch, or says why not.
uint32_t SoftController::Core::accept(uint32_t queue, const Command& command) {
  if (opcode_of(command) != kReadOpcode) return kInvalidOpcode;
  const BlockRead read = read_of(command);
  if (read.name_space != 1) return kInvalidNamespace;
  if (read.block >= blocks() || read.blocks > blocks() - read.block) return kLbaOutOfRange;
  if (uint64_t{read.blocks} * block_bytes_ > kMostReadBytes) return kInvalidField;
  if (closed_.empty()) {
    closed_.push_back(static_cast<uint32_t>(open_.size()));
    open_.emplace_back();
  }
  const uint32_t open = closed_.back();
  const size_t before = batch_.size();
  open_[open] = Open{queue, id_of(command), 0, kSuccess};
  const uint32_t status = add_parts(read, open);
  if (status != kSuccess) {
    parts_.resize(parts_.size() - (batch_.size() - before));
    batch_.resize(before);
  } else {
    closed_.pop_back();
  }
  return status;
}

/// Cuts a read where its pages do not follow each other in memory.
uint32_t SoftController::Core::add_parts(const BlockRead& read, uint32_t open) {
  const auto bytes = static_cast<uint32_t>(read.blocks * block_bytes_);
  const uint64_t start = read.into.first;
  const auto offset = static_cast<uint32_t>(start % kPageBytes);
  const uint32_t pages = pages_touched(offset, bytes);
  if (start % 4 != 0) return kPrpOffsetInvalid;
  if (pages > 2 && (read.into.second % kPageBytes != 0 || !allowed(read.into.second, (pages - 1) * sizeof(uint64_t))))
    return kInvalidField;
  const auto* list = reinterpret_cast<const uint64_t*>(read.into.second);
  auto address = [&](uint32_t page) { return page == 0 ? start : pages == 2 ? read.into.second : list[page - 1]; };
  int64_t at = static_cast<int64_t>(read.block) * block_bytes_;
  uint32_t left = bytes;
  for (uint32_t page = 0; page < pages;) {
    const uint64_t begin = address(page);
    uint32_t run = std::min(left, kPageBytes - static_cast<uint32_t>(begin % kPageBytes));
    if (page > 0 && begin % kPageBytes != 0) return kPrpOffsetInvalid;
    for (++page; page < pages && address(page) == begin + run; ++page) run += std::min(left - run, kPageBytes);
    if (!allowed(begin, run)) return kDataTransferError;
    const auto need = static_cast<uint32_t>(std::clamp<int64_t>(bytes_ - at, 0, run));
    const Read part{at, run, need, 0, reinterpret_cast<std::byte*>(begin)};
    batch_.push_back(part);
    parts_.push_back(Part{part, open, false});
    ++open_[open].reads;
    at += run;
    left -= run;
  }
  return kSuccess;
}

bool SoftController::Core::allowed(uint64_t address, uint64_t bytes) const noexcept {
  return std::any_of(memory_.begin(), memory_.end(), [&](const auto& memory) {
    const auto begin = reinterpret_cast<uint64_t>(memory.data());
    return address >= begin && bytes <= memory.size() && address - begin <= memory.size() - bytes;
  });
}

void SoftController::Core::ready(size_t index, const std::byte* data) noexcept {
  const std::lock_guard lock(mutex_);
  Part& part = parts_[index - first_];
  if (data != part.read.into) std::memcpy(part.read.into, data, part.read.need);
  end_part(part, kSuccess);
  for (; !parts_.empty() && parts_.front().arrived; parts_.pop_front()) ++first_;
}

/// A read has ended. The mutex is held.
void SoftController::Core::end_part(Part& part, uint32_t status) noexcept {
  const Read& read = part.read;
  part.arrived = true;
  ++arrived_;
  if (status == kSuccess) std::memset(read.into + read.need, 0, read.bytes - read.need);
  Open& open = open_[part.open];
  if (status != kSuccess) open.status = status;
  if (--open.reads > 0) return;
  complete(open.queue, open.id, open.status);
  closed_.push_back(part.open);
}

void SoftController::Core::complete(uint32_t queue, uint16_t id, uint32_t status) noexcept {
  Queue& given = queues_[queue];
  if (given.unwritten.empty() && has_room(given))
    write(given, id, status);
  else
    given.unwritten.emplace_back(id, status);
}

/// Whether the reader has taken a completion from the entry that comes next.
bool SoftController::Core::has_room(Queue& queue) noexcept {
  const QueuePair& pair = queue.pair;
  if (queue.completed - queue.taken < pair.most_in_flight()) return true;
  queue.taken += pair.entry(HostLink::load_acquire(pair.complete_bell) - queue.taken);
  return queue.completed - queue.taken < pair.most_in_flight();
}

void SoftController::Core::write(Queue& queue, uint16_t id, uint32_t status) noexcept {
  const QueuePair& pair = queue.pair;
  Completion& entry = pair.completions[pair.entry(queue.completed)];
  entry.words[0] = entry.words[1] = 0;
  entry.words[2] = pair.entry(queue.fetched);
  HostLink::store_release(&entry.words[3], completion_word(id, pair.phase(queue.completed), status));
  ++queue.completed;
}

/// Writes the completions that waited for room, as far as there is some.
void SoftController::Core::flush(Queue& queue) noexcept {
  for (; !queue.unwritten.empty() && has_room(queue); queue.unwritten.pop_front())
    write(queue, queue.unwritten.front().first, queue.unwritten.front().second);
}

SoftController::SoftController(const ImageFile& image, std::vector<QueuePair> pairs,
                               std::vector<std::span<std::byte>> memory, std::vector<std::shared_ptr<void>> owners,
                               const MediumMaker& medium)
    : core_(std::make_shared<Core>(image, std::move(pairs), std::move(memory), std::move(owners), medium)) {
  core_->thread = std::thread([core = core_] { core->run(); });
}

SoftController::~SoftController() {
  if (core_->owner != getpid()) {
    // The thread is the parent's. Its handle must not be destroyed, nor what it may hold.
    static_cast<void>(new std::shared_ptr<Core>(std::move(core_)));
    return;
  }
  if (core_->thread.joinable()) stop(std::chrono::seconds(1));
}

uint32_t SoftController::block_bytes() const noexcept { return core_->block_bytes(); }
uint64_t SoftController::blocks() const noexcept { return core_->blocks(); }
std::string SoftController::trouble() const { return core_->trouble(); }
bool SoftController::running() const noexcept { return core_->running(); }

bool SoftController::stop(std::chrono::nanoseconds patience) noexcept {
  if (!core_->thread.joinable()) return !core_->running();
  const bool ended = core_->stop(patience);
  if (ended)
    core_->thread.join();
  else
    core_->thread.detach();  // it holds the core, and with it all memory that reads land in
  return ended;
}

}  // namespace tiering::nvme
