// Rows of a table in a file, read at random: for disks whose random reads are no slower than reading everything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <tiering/io/image_set.hpp>
#include <tiering/io/read_engine.hpp>
#include <tiering/views.hpp>
#include <vector>

namespace tiering {

/// Rows of `row_bytes` that lie one after the other from `offset` on. Not thread-safe.
///
/// Approach: a read for each row, widened to the alignment of direct reads, as many in flight as the engine takes;
/// a row is copied to its place when it arrives.
/// Memory: the engine's buffers, and 56 bytes for each row of a call.
class RowReader final : private ReadSink {
 public:
  static constexpr int64_t kLargestRow = int64_t{1} << 20;

  RowReader(const std::string& path, int64_t offset, int64_t row_bytes, const std::string& engine, int depth);
  RowReader(const RowReader&) = delete;
  RowReader& operator=(const RowReader&) = delete;
  ~RowReader() override;

  /// out row i = table row ids[i]. Throws IoError; InputError where a row lies beyond the file.
  void read(const IdSpan& ids, std::byte* out);
  int64_t row_bytes() const noexcept { return row_bytes_; }

 private:
  void ready(size_t index, const std::byte* data) noexcept override;

  ImageSet files_;
  int64_t offset_, row_bytes_;
  std::unique_ptr<ReadEngine> engine_;
  std::vector<Read> reads_;
  std::vector<uint32_t> skips_;  ///< bytes of a read before its row
  std::byte* out_ = nullptr;
};

}  // namespace tiering
