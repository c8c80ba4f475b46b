#include <tiering/io/stream.hpp>

namespace tiering {
namespace {

// Reads in flight. The ring takes a whole chunk, because it is filled up only when the caller comes back; each of the
// pool's reads holds a thread.
constexpr int kRingDepth = 512, kThreads = 8;

EngineOptions stream_options(const std::string& engine) {
  EngineOptions options;
  options.depth = engine == "threads" ? kThreads : kRingDepth;
  options.max_read = static_cast<uint32_t>(StreamReader::kPieceBytes + StreamReader::kPadding);
  return options;
}

}  // namespace

StreamReader::StreamReader(ImageSet files, const std::string& engine) : files_(std::move(files)) {
  TIERING_EXPECT(kAlignment % files_.offset_alignment == 0 && kAlignment % files_.memory_alignment == 0,
                 "direct reads here need an alignment of ", files_.offset_alignment,
                 ", more than 4096: read through the page cache");
  const std::string name = EngineChoice(engine).name();
  engine_ = make_engine(name, files_, stream_options(name));
}

StreamReader::~StreamReader() { engine_->abandon(); }

bool StreamReader::register_buffers(std::span<const std::span<std::byte>> buffers) {
  return engine_->register_buffers(buffers);
}

void StreamReader::add(const StreamRange& range) {
  TIERING_EXPECT(range.file < files_.images.size(), "there is no file with number ", range.file);
  const int64_t end = range.offset + range.bytes;
  const int64_t first = round_down(range.offset, kAlignment), stop = round_up(end, kAlignment);
  TIERING_EXPECT(range.offset >= 0 && range.bytes >= 0 && stop - first <= range.room,
                 "the buffer is too small: expected ", stop - first, " bytes, found ", range.room);
  begins_.push_back(range.into + (range.offset - first));
  if (range.bytes == 0) return;
  for (int64_t at = first; at < end; at += kPieceBytes) {
    const int64_t last = std::min(at + kPieceBytes, stop);
    reads_.push_back({at, static_cast<uint32_t>(last - at), static_cast<uint32_t>(std::min(last, end) - at), range.file,
                      range.into + (at - first)});
  }
}

void StreamReader::start(std::span<const StreamRange> ranges) {
  TIERING_EXPECT(!busy_, "a chunk is being read already");
  reads_.clear();
  begins_.clear();
  for (const StreamRange& range : ranges) add(range);
  engine_->start(reads_, *this);
  busy_ = true;
}

std::vector<const std::byte*> StreamReader::finish() {
  TIERING_EXPECT(busy_, "nothing is being read");
  busy_ = false;
  engine_->finish();
  return std::exchange(begins_, {});
}

}  // namespace tiering
