// Baseline: images mapped into memory, rows copied through page faults by the calling thread. The images' sizes are
// checked before each batch; a file truncated in the middle of one ends the process with SIGBUS, as with any mapping.
#include <sys/mman.h>

#include <cerrno>
#include <system_error>
#include <tiering/io/read_engine.hpp>
#include <utility>
#include <vector>

namespace tiering {
namespace {

class Mapping {
 public:
  explicit Mapping(const ImageFile& image) : bytes_(static_cast<size_t>(image.bytes())) {
    if (bytes_ == 0) return;
    void* mapped = mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, image.fd(), 0);
    if (mapped == MAP_FAILED) throw IoError(errno, image.path() + ": mmap: " + std::generic_category().message(errno));
    data_ = static_cast<std::byte*>(mapped);
    madvise(mapped, bytes_, MADV_RANDOM);
  }
  Mapping(Mapping&& other) noexcept : data_(other.data_), bytes_(other.bytes_) { other.data_ = nullptr; }
  Mapping& operator=(Mapping&&) = delete;
  ~Mapping() {
    if (data_ != nullptr) munmap(data_, bytes_);
  }
  const std::byte* data() const noexcept { return data_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_;
};

class MmapEngine final : public ReadEngine {
 public:
  explicit MmapEngine(const ImageSet& images) : images_(images) {
    mappings_.reserve(images.images.size());
    for (const auto& image : images.images) mappings_.emplace_back(image);
  }

  const char* name() const noexcept override { return "mmap"; }

  void start(std::span<const Read> reads, ReadSink& sink) override {
    reads_ = reads;
    sink_ = &sink;
  }

  void finish() override {
    auto reads = std::exchange(reads_, {});
    size_t base = 0;
    do {
      copy(reads, base);
      base += reads.size();
      reads = sink_->more(true);
    } while (!reads.empty());
  }

  void abandon() noexcept override { reads_ = {}; }

 private:
  void copy(std::span<const Read> reads, size_t base) {
    bytes_now_.clear();
    for (const auto& image : images_.images) bytes_now_.push_back(image.bytes_now());
    for (size_t i = 0; i < reads.size(); ++i) {
      const Read& read = reads[i];
      const ImageFile& image = images_.images[read.image];
      if (read.offset + read.need > bytes_now_[read.image]) throw truncated_error(image, read);
      sink_->ready(base + i, mappings_[read.image].data() + read.offset);
    }
  }

  const ImageSet& images_;
  std::vector<Mapping> mappings_;
  std::vector<int64_t> bytes_now_;
  std::span<const Read> reads_;
  ReadSink* sink_ = nullptr;
};

}  // namespace

std::unique_ptr<ReadEngine> make_mmap_engine(const ImageSet& images, const EngineOptions&) {
  return std::make_unique<MmapEngine>(images);
}

}  // namespace tiering
