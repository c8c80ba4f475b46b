#include <cstring>
#include <string>
#include <tiering/io/row_reader.hpp>

namespace tiering {
namespace {

int64_t up(int64_t value, int64_t alignment) { return (value + alignment - 1) / alignment * alignment; }

}  // namespace

RowReader::RowReader(const std::string& path, int64_t offset, int64_t row_bytes, const std::string& engine,
                     int depth)
    : files_(ImageSet::open({path}, DirectMode::automatic)), offset_(offset), row_bytes_(row_bytes) {
  TIERING_EXPECT(
      offset >= 0 && row_bytes > 0 && row_bytes <= kLargestRow && depth > 0,
      "expected rows of 1 to " + std::to_string(kLargestRow) + " bytes, found " + std::to_string(row_bytes));
  EngineOptions options;
  options.depth = depth;
  options.max_read = static_cast<uint32_t>(up(row_bytes, files_.offset_alignment) + files_.offset_alignment);
  engine_ = make_engine(engine, files_, options);
}

RowReader::~RowReader() { engine_->abandon(); }

void RowReader::read(const IdSpan& ids, std::byte* out) {
  const int64_t alignment = files_.offset_alignment, bytes = files_.images.front().bytes();
  reads_.clear();
  skips_.clear();
  out_ = out;
  ids.visit([&](const auto& rows) {
    for (const int64_t row : rows) {
      const int64_t begin = offset_ + row * row_bytes_, end = begin + row_bytes_;
      TIERING_EXPECT(row >= 0 && end <= bytes, "row " + std::to_string(row) + " is not in " +
                                                   files_.images.front().path() + ": it has " +
                                                   std::to_string((bytes - offset_) / row_bytes_) + " rows");
      const int64_t first = begin / alignment * alignment;
      reads_.push_back({first, static_cast<uint32_t>(up(end, alignment) - first),
                        static_cast<uint32_t>(end - first), 0, nullptr});
      skips_.push_back(static_cast<uint32_t>(begin - first));
    }
  });
  engine_->start(reads_, *this);
  engine_->finish();
}

void RowReader::ready(size_t index, const std::byte* data) noexcept {
  std::memcpy(out_ + static_cast<int64_t>(index) * row_bytes_, data + skips_[index],
              static_cast<size_t>(row_bytes_));
}

}  // namespace tiering
