// Buffers, the rule for short reads, error texts and the table of engines.
#include <sys/mman.h>

#include <cerrno>
#include <chrono>
#include <system_error>
#include <thread>
#include <tiering/buffer.hpp>
#include <tiering/io/read_engine.hpp>

namespace tiering {

AlignedBuffer::AlignedBuffer(size_t bytes, bool kept_from_forks) : data_(nullptr), bytes_(bytes) {
  if (bytes == 0) return;
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED)
    throw IoError(
        errno, "cannot get " + std::to_string(bytes) + " bytes of buffer: " + std::generic_category().message(errno));
  data_ = static_cast<std::byte*>(mapped);
  if (bytes >= 2 * kHugePageBytes) madvise(mapped, bytes, MADV_HUGEPAGE);  // advice: failure is harmless
  if (kept_from_forks) madvise(mapped, bytes, MADV_DONTFORK);
}

AlignedBuffer::~AlignedBuffer() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

void pause_after_refusal() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

uint32_t advance_read(const ImageFile& image, const Read& read, uint32_t done, uint32_t arrived) {
  const uint32_t total = done + arrived;
  if (total >= read.need) return total;
  // A direct read must go on at an aligned place: drop the bytes past the last boundary and read them again.
  const auto align = static_cast<uint32_t>(image.offset_alignment());
  const uint32_t aligned = total / align * align;
  if (arrived == 0 || aligned <= done) throw truncated_error(image, read);
  return aligned;
}

IoError inherited_error() {
  return IoError(ECHILD, "these reads were begun by another process, of which this is a fork");
}

IoError truncated_error(const ImageFile& image, const Read& read) {
  return IoError(EIO, image.path() + ": ends at byte " + std::to_string(image.bytes_now()) + ", but bytes " +
                          std::to_string(read.offset) + " to " + std::to_string(read.offset + read.need) +
                          " were expected: the file was truncated: make it again");
}

IoError read_error(const ImageFile& image, const Read& read, uint32_t done, int code) {
  std::string text = image.path() + ": reading " + std::to_string(read.bytes - done) + " bytes at byte " +
                     std::to_string(read.offset + done) + ": " + std::generic_category().message(code);
  if (code == EAGAIN) text += ", in " + std::to_string(kMaxRefusals) + " tries more, too: use a smaller depth";
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

void EngineChoice::fall_back(const RingError& error) {
  if (!automatic_) throw error;
  fallback_ = error.what();
  name_ = engine_kinds().back().name;
}

}  // namespace tiering
