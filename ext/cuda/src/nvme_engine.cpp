// How an engine is made of waves: while the GPU waits for one, the next is being read, and what has come is handed over
// between the two. Errors wait until everything in flight has ended, as with all engines.
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <exception>
#include <string>
#include <tiering/cuda/memory.hpp>
#include <tiering/cuda/nvme_engine.hpp>
#include <tiering/cuda/nvme_reads.hpp>
#include <tiering/nvme/engine_reads.hpp>
#include <utility>
#include <vector>

namespace tiering::cuda {
namespace {

constexpr uint32_t kPairs = 4;                    // of an image, at most
constexpr auto kQuiet = std::chrono::seconds(1);  // until reads that are given up must have come to rest

/// The places of its queues are a power of two; one place of a queue is never used.
NvmeOptions options_for(const EngineOptions& options, std::chrono::nanoseconds patience) {
  const auto depth = std::max<uint32_t>(static_cast<uint32_t>(options.depth), 4);
  const uint32_t pairs = std::clamp<uint32_t>(depth / 4, 1, kPairs);
  const uint32_t entries = std::min(std::bit_ceil((depth + pairs - 1) / pairs), nvme::kMostEntries);
  return {.per_image = pairs,
          .in_flight = entries - 1,
          .max_read = options.max_read,
          .patience = patience,
          .only_image = options.only_image};
}

int current_device() {
  int device = 0;
  check(cudaGetDevice(&device), "finding the device");
  return device;
}

class NvmeEngine final : public ReadEngine {
 public:
  NvmeEngine(nvme::PairServer server, const ImageSet& images, const EngineOptions& options,
             std::chrono::nanoseconds patience)
      : server_(std::move(server)),
        name_(std::string(server_.name) + "-gpu"),
        images_(images),
        options_(options_for(options, patience)),
        device_(current_device()),
        owner_(getpid()),
        open_(std::max<size_t>(static_cast<size_t>(options.depth), 1)) {
    TIERING_EXPECT(options.max_read <= nvme::kMostReadBytes,
                   "max_read: expected at most " + std::to_string(nvme::kMostReadBytes) + " bytes with the engine " +
                       name_ + ", found " + std::to_string(options.max_read));
  }

  ~NvmeEngine() override {
    abandon();
    if (inherited()) {
      static_cast<void>(reads_.release());  // the parent's: here, CUDA cannot be called
      return;
    }
    const DeviceScope scope(device_, std::nothrow);
    reads_.reset();
  }

  const char* name() const noexcept override { return name_.c_str(); }

  void start(std::span<const Read> reads, ReadSink& sink) override {
    given_ = reads;
    sink_ = &sink;
    next_ = base_ = 0;
    busy_ = !inherited();
    closed_ = false;
    error_ = nullptr;
    if (inherited()) return fail(std::make_exception_ptr(IoError(EPERM, "the engine " + name_ + kForked)));
    work([&] {
      if (!reads_) make();
      fill();
    });
  }

  void poll() noexcept override {
    if (flying_ == 0 || inherited()) return;
    work([&] {
      if (reads_->arrived()) reap();
    });
  }

  void finish() override {
    const bool lost = std::exchange(busy_, false) && inherited();
    drain();
    if (lost) throw inherited_error();
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

  void abandon() noexcept override {
    closed_ = true;
    drain();
    busy_ = false;
    error_ = nullptr;
  }

 private:
  static constexpr const char* kForked =
      " cannot read in a forked process, where there is no CUDA: start workers by spawn, or use "
      "the engine io_uring there";
  struct Open {
    Read read{};
    size_t index = 0;
  };

  /// Number of an image among those that there are queues of.
  uint32_t number(uint32_t image) const noexcept { return options_.only_image < 0 ? image : 0; }
  bool inherited() const noexcept { return owner_ != getpid(); }

  void make() {
    reads_ = std::make_unique<NvmeReads>(server_, images_, options_);
    free_.clear();
    for (size_t s = open_.size(); s-- > 0;) free_.push_back(static_cast<uint32_t>(s));
  }

  /// Runs f on the engine's device. Errors are kept for finish(); after one, nothing is known of what is in flight.
  template <typename F>
  void work(F&& f) noexcept {
    try {
      const DeviceScope scope(device_);
      f();
    } catch (const CudaError& error) {
      give_up(std::make_exception_ptr(IoError(EIO, "the engine " + name_ + ": " + error.what())));
    } catch (...) {
      give_up(std::current_exception());
    }
  }

  void fail(std::exception_ptr error) noexcept {
    if (!error_) error_ = std::move(error);
    closed_ = true;  // nothing new after an error
  }

  /// Forgets everything in flight; the next batch gets queues of its own.
  void give_up(std::exception_ptr error) noexcept {
    fail(std::move(error));
    flying_ = 0;
    const DeviceScope scope(device_, std::nothrow);
    reads_.reset();
  }

  /// Makes waves of what there is, until two are under way, and has the GPU wait for the oldest.
  void fill() {
    while (!closed_ && reads_->under_way() < 2) {
      const size_t room = (open_.size() + 1) / 2;
      while (reads_->added() < room && !free_.empty() && have_read() && add(given_[next_])) ++next_;
      if (reads_->added() == 0) break;
      flying_ += reads_->added();
      reads_->submit();
    }
    if (reads_->under_way() > 0) reads_->expect();
  }

  /// Whether there is a read to begin; asks for more where all that were given are in a wave.
  bool have_read() {
    if (next_ < given_.size()) return true;
    base_ += next_;
    next_ = 0;
    given_ = sink_->more(flying_ + reads_->added() == 0);
    return !given_.empty();
  }

  bool add(const Read& read) {
    const uint32_t slot = free_.back();
    Read placed = read;
    placed.image = number(read.image);
    if (!reads_->add(placed, slot)) return false;
    free_.pop_back();
    open_[slot] = Open{read, base_ + next_};
    return true;
  }

  /// Hands over the oldest wave's, which has arrived, and goes on.
  void reap() {
    const NvmeResult* lost = nullptr;
    for (const NvmeResult& result : reads_->take()) {
      if (result.outcome == nvme::Outcome::done)
        end(result);
      else
        lost = &result;
    }
    if (lost != nullptr) return give_up(std::make_exception_ptr(explain(*lost)));
    fill();
  }

  void end(const NvmeResult& result) noexcept {
    const Open open = open_[result.request];
    const ImageFile& image = images_.images[open.read.image];
    try {
      if (result.status != nvme::kSuccess)
        throw nvme::refused_error(image, open.read, result.status,
                                  reads_->controller(number(open.read.image)).trouble());
      if (open.read.offset + open.read.need > image.bytes()) throw truncated_error(image, open.read);
      sink_->ready(open.index, result.data);
    } catch (...) {
      fail(std::current_exception());
    }
    free_.push_back(result.request);
    --flying_;
  }

  /// What a wait that was given up means.
  IoError explain(const NvmeResult& result) const {
    const uint32_t image = result.queue / options_.per_image;
    const int only = options_.only_image;
    const std::string path = images_.images[only < 0 ? image : static_cast<uint32_t>(only)].path();
    const auto& controller = reads_->controller(image);
    if (result.outcome == nvme::Outcome::strange)
      return IoError(EPROTO, path + ": its controller completed a command that is not in flight");
    if (!controller.running()) return IoError(EIO, path + ": its controller has ended: " + controller.trouble());
    if (result.outcome == nvme::Outcome::aborted)
      return IoError(EIO, path + ": reads were given up because the controller of another image has ended");
    const auto patience = std::chrono::duration_cast<std::chrono::milliseconds>(options_.patience).count();
    return IoError(ETIMEDOUT, path + ": reads have not come back in " + std::to_string(patience) +
                                  " ms: the drive or the file system hangs (see the kernel's log)");
  }

  void drain() noexcept {
    if (inherited()) return;
    if (!closed_ && reads_) work([&] { fill(); });
    while (flying_ > 0)
      work([&] {
        reads_->wait();
        reap();
      });
  }

  nvme::PairServer server_;
  std::string name_;
  const ImageSet& images_;
  NvmeOptions options_;
  int device_;
  pid_t owner_;                       ///< process that made it
  std::unique_ptr<NvmeReads> reads_;  ///< null before the first batch and after reads were given up
  std::vector<Open> open_;            ///< reads in flight
  std::vector<uint32_t> free_;        ///< places among them
  std::span<const Read> given_;
  ReadSink* sink_ = nullptr;
  size_t next_ = 0;     ///< first of them not yet in a wave
  size_t base_ = 0;     ///< reads that the sink gave before them
  size_t flying_ = 0;   ///< in waves that are under way
  bool busy_ = false;   ///< from start() to the end of finish() or abandon()
  bool closed_ = true;  ///< nothing new is begun
  std::exception_ptr error_;
};

}  // namespace

std::unique_ptr<ReadEngine> make_gpu_nvme_engine(nvme::PairServer server, const ImageSet& images,
                                                 const EngineOptions& options, std::chrono::nanoseconds patience) {
  return std::make_unique<NvmeEngine>(std::move(server), images, options, patience);
}

}  // namespace tiering::cuda
