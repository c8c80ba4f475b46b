// How a thread of the host uses the queues: it writes what there is room for, rings once for all of it, and takes what
// has arrived. The same queues serve a GPU; here they run without one.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <optional>
#include <string>
#include <thread>
#include <tiering/nvme/engine_reads.hpp>
#include <tiering/nvme/host_engine.hpp>
#include <tiering/nvme/host_link.hpp>
#include <tiering/nvme/queue_memory.hpp>
#include <utility>
#include <vector>

namespace tiering::nvme {
namespace {

constexpr uint32_t kBusyTries = 512;  // looks at the queues before the thread sleeps between looks
constexpr auto kSleep = std::chrono::microseconds(20);
constexpr auto kQuiet = std::chrono::seconds(1);  // until reads that are given up must have come to rest

/// Where the reads of an engine land: places for all that are in flight, by their number.
struct Places {
  explicit Places(const EngineOptions& options)
      : landing{nullptr, static_cast<uint32_t>(options.depth), Landing::whole_pages(options.max_read)},
        memory(std::make_shared<SharedMemory>(landing.bytes(), options.kept_from_forks)) {
    landing.begin = memory->buffer.data();
  }

  Landing landing;
  std::shared_ptr<SharedMemory> memory;
};

/// One image's queues and what serves them.
class Lane {
 public:
  Lane(uint32_t number, const ImageFile& image, const Places& places, const PairServer& server)
      : landing_(places.landing) {
    const uint32_t depth = QueueMemory::depth_for(places.landing.places);
    free_ids_.resize(depth);
    in_flight_.resize(depth);
    books = {free_ids_.data(), in_flight_.data()};
    const auto queues = std::make_shared<SharedMemory>(QueueMemory{nullptr, depth, 0}.bytes());
    const QueueMemory where{queues->buffer.data(), depth, 0};
    reset(where.pair(), books);
    served_ = server.serve({number, image, {where}, {queues, places.memory}});
  }

  const QueuePair& pair() const { return served_.pairs.front(); }
  Controller& controller() const { return *served_.controller; }

  /// Writes the next command, behind `written` others that were not rung for. It lands in place `place`.
  void write(uint32_t written, uint32_t place, const Read& read) {
    BlockRead blocks = blocks_of(controller(), read);
    blocks.into = served_.prps(landing_, place, blocks.blocks * controller().block_bytes());
    write_command(pair(), books, books.submitted + written, place, blocks);
  }

 private:
  std::vector<uint16_t> free_ids_;
  std::vector<InFlight> in_flight_;
  Landing landing_;
  ServedPairs served_;

 public:
  QueueBooks books;
};

class NvmeEngine final : public ReadEngine {
 public:
  NvmeEngine(PairServer server, const ImageSet& images, const EngineOptions& options, std::chrono::nanoseconds patience)
      : server_(std::move(server)),
        images_(images),
        options_(options),
        patience_(patience),
        open_(size_t(options.depth)) {
    TIERING_EXPECT(options.max_read <= kMostReadBytes, "max_read: expected at most " + std::to_string(kMostReadBytes) +
                                                           " bytes with the engine " + server_.name + ", found " +
                                                           std::to_string(options.max_read));
    new_lanes();
  }

  ~NvmeEngine() override { abandon(); }

  const char* name() const noexcept override { return server_.name; }

  void start(std::span<const Read> reads, ReadSink& sink) override {
    reads_ = reads;
    sink_ = &sink;
    next_ = base_ = 0;
    busy_ = true;
    closed_ = false;
    error_ = nullptr;
    if (owner_ != getpid() || poisoned_) new_lanes();
    fill();
  }

  void poll() noexcept override {
    if (flying_ > 0 && reap() > 0) fill();
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
    drain();
    busy_ = false;
    error_ = nullptr;
  }

 private:
  struct Open {
    Read read{};
    size_t index = 0;
  };

  /// Those of a parent, and those that reads were given up of, are left as they are: their controllers keep what reads
  /// may still land in.
  void new_lanes() {
    lanes_.clear();
    places_.emplace(options_);
    lanes_.resize(images_.images.size());
    free_.clear();
    for (size_t s = open_.size(); s-- > 0;) free_.push_back(static_cast<uint32_t>(s));
    flying_ = 0;
    poisoned_ = false;
    owner_ = getpid();
  }

  Lane& lane_of(uint32_t image) {
    auto& lane = lanes_[image];
    if (!lane) lane = std::make_unique<Lane>(image, images_.images[image], *places_, server_);
    return *lane;
  }

  /// Submits reads while places are free; every queue's doorbell rings once.
  void fill() noexcept {
    written_.assign(lanes_.size(), 0);
    try {
      while (!closed_ && !free_.empty()) {
        if (next_ == reads_.size()) {
          if (rang()) written_.assign(lanes_.size(), 0);
          base_ += next_;
          next_ = 0;
          reads_ = sink_->more(flying_ == 0);
          if (reads_.empty()) break;
        }
        submit(reads_[next_]);
        ++next_;
      }
    } catch (...) {
      fail(std::current_exception());
    }
    rang();
    since_ = HostLink::nanoseconds();
  }

  void submit(const Read& read) {
    Lane& lane = lane_of(read.image);
    const uint32_t slot = free_.back();
    lane.write(written_[read.image], slot, read);
    open_[slot] = Open{read, base_ + next_};
    free_.pop_back();
    ++written_[read.image];
    ++flying_;
  }

  bool rang() noexcept {
    bool any = false;
    for (size_t i = 0; i < lanes_.size(); ++i) {
      if (written_[i] > 0) ring_submitted<HostLink>(lanes_[i]->pair(), lanes_[i]->books, written_[i]);
      any |= written_[i] > 0;
    }
    return any;
  }

  /// Takes what has arrived; returns how much.
  size_t reap() noexcept {
    size_t all = 0;
    for (uint32_t image = 0; image < lanes_.size(); ++image) {
      if (!lanes_[image]) continue;
      Lane& lane = *lanes_[image];
      uint32_t count = 0, word;
      for (; count < lane.books.flying() && arrived<HostLink>(lane.pair(), lane.books.reaped + count, word); ++count) {
        const Reaped reaped = take(lane.pair(), lane.books, lane.books.reaped + count, word);
        if (reaped.outcome != Outcome::done) {
          give_up(EPROTO, image, "its controller completed a command that is not in flight");
          return all;
        }
        end(lane, reaped);
      }
      if (count > 0) ring_reaped<HostLink>(lane.pair(), lane.books, count);
      all += count;
    }
    if (all > 0) since_ = HostLink::nanoseconds();
    return all;
  }

  void end(Lane& lane, const Reaped& reaped) noexcept {
    const Open& open = open_[reaped.request];
    try {
      const ImageFile& image = images_.images[open.read.image];
      if (reaped.status != kSuccess) throw refused_error(image, open.read, reaped.status, lane.controller().trouble());
      if (open.read.offset + open.read.need > image.bytes()) throw truncated_error(image, open.read);
      sink_->ready(open.index, places_->landing.place(reaped.request));
    } catch (...) {
      fail(std::current_exception());
    }
    free_.push_back(reaped.request);
    --flying_;
  }

  void fail(std::exception_ptr error) noexcept {
    if (!error_) error_ = std::move(error);
    closed_ = true;  // nothing new after an error
  }

  void drain() noexcept {
    if (owner_ != getpid()) {
      flying_ = 0;  // the parent's
      return;
    }
    fill();
    for (uint32_t tries = 0; flying_ > 0;) {
      if (reap() > 0) {
        tries = 0;
        fill();
      } else if (++tries >= kBusyTries) {
        std::this_thread::sleep_for(kSleep);
        watch();
      } else {
        HostLink::pause(tries);
      }
    }
  }

  /// Gives up when a controller has ended, or nothing has come for too long.
  void watch() noexcept {
    const bool late = HostLink::nanoseconds() - since_ > static_cast<uint64_t>(patience_.count());
    for (uint32_t image = 0; image < lanes_.size() && flying_ > 0; ++image) {
      const auto& lane = lanes_[image];
      if (!lane || lane->books.flying() == 0) continue;
      uint32_t word;
      if (!lane->controller().running() && !arrived<HostLink>(lane->pair(), lane->books.reaped, word))
        give_up(EIO, image, "its controller has ended: " + lane->controller().trouble());
      else if (late)
        give_up(ETIMEDOUT, image,
                std::to_string(lane->books.flying()) + " reads have not come back in " +
                    std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(patience_).count()) +
                    " ms: the drive or the file system hangs (see the kernel's log)");
    }
  }

  /// Forgets everything in flight; the next batch gets queues of its own. What does not come to rest in time lands in
  /// memory that nobody uses any more.
  void give_up(int code, uint32_t image, const std::string& why) noexcept {
    fail(std::make_exception_ptr(IoError(code, images_.images[image].path() + ": " + why)));
    for (const auto& lane : lanes_)
      if (lane) lane->controller().stop(kQuiet);
    flying_ = 0;
    poisoned_ = true;
  }

  PairServer server_;
  const ImageSet& images_;
  EngineOptions options_;
  std::chrono::nanoseconds patience_;
  std::optional<Places> places_;
  std::vector<std::unique_ptr<Lane>> lanes_;  ///< by image; none before its first read
  pid_t owner_ = 0;                           ///< process that made them
  bool poisoned_ = false;                     ///< they hold commands that were given up
  std::vector<Open> open_;                    ///< reads in flight
  std::vector<uint32_t> free_;                ///< places among them
  std::vector<uint32_t> written_;             ///< commands that were not rung for, by image
  std::span<const Read> reads_;
  ReadSink* sink_ = nullptr;
  size_t next_ = 0;     ///< first of them not yet begun
  size_t base_ = 0;     ///< reads that the sink gave before them
  bool busy_ = false;   ///< from start() to the end of finish() or abandon()
  bool closed_ = true;  ///< nothing new is begun
  size_t flying_ = 0;
  uint64_t since_ = 0;  ///< when something last arrived or began
  std::exception_ptr error_;
};

}  // namespace

std::unique_ptr<ReadEngine> make_nvme_engine(PairServer server, const ImageSet& images, const EngineOptions& options,
                                             std::chrono::nanoseconds patience) {
  return std::make_unique<NvmeEngine>(std::move(server), images, options, patience);
}

}  // namespace tiering::nvme
