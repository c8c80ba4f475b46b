// Rows of a table encoded and decoded, and what a pass over all of them has to find before.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <string>
#include <tiering/buffer.hpp>
#include <tiering/codec/codes.hpp>

namespace tiering {

/// The encoding of a name, one of the first `count`.
Encoding parse_encoding(const std::string& name, int count);

/// Writes the numbers of the row at `from` to `to` in another encoding.
using RowLoop = void (*)(const RowCodec& codec, const std::byte* from, std::byte* to);

/// The loop for this processor, or, `portable`, that for any; they give the same bits.
RowLoop row_loop(Encoding from, Encoding to, bool portable = false);

/// Writes rows to an output as it wants them: as they are stored, or decoded on the way.
class RowWriter {
 public:
  explicit RowWriter(int64_t bytes) : row_bytes(bytes), out_bytes(bytes) {}
  explicit RowWriter(const RowCodec& codec, int64_t bytes = 0)  // of a stored row; 0: with padding
      : row_bytes(bytes > 0 ? bytes : codec.stored_bytes()),
        out_bytes(codec.out_bytes()),
        codec_(codec),
        decode_(codec.stored == codec.delivered ? nullptr : row_loop(codec.stored, codec.delivered)) {}

  int64_t row_bytes, out_bytes;  ///< of a stored row, and of one in the output

  bool decodes() const noexcept { return decode_ != nullptr || out_bytes != row_bytes; }
  void write(std::byte* out, const std::byte* row) const {
    if (decode_ != nullptr)
      decode_(codec_, row, out);
    else
      std::memcpy(out, row, static_cast<size_t>(out_bytes));
  }

 private:
  RowCodec codec_;
  RowLoop decode_ = nullptr;
};

/// Rows one behind the other, of float32 and as they are stored; the padding of stored rows becomes 0.
void encode_rows(const RowCodec& codec, const float* rows, int64_t num_rows, std::byte* out, int threads);
void decode_rows(const RowCodec& codec, const std::byte* stored, int64_t num_rows, std::byte* out, int threads);

/// What a fit needs to know of every column, once all rows have passed.
struct ColumnFit {
  /// Numbers whose first place is kept: NaN or infinite; finite from 2^126 on; finite, but infinite as float16.
  enum Odd { kNotFinite, kHuge, kBeyondHalf, kNumOdd };
  static constexpr int32_t kNoBit = 999;

  explicit ColumnFit(int64_t dim);
  /// Takes in the rows that follow. What is kept of a column with NaN or infinity says nothing but where they are.
  void add(const float* rows, int64_t count, int threads);

  int64_t dim;
  Buffer<float> low, high;
  Buffer<float> least;         ///< the smallest magnitude but 0; infinite where all are 0
  Buffer<int32_t> lowest_bit;  ///< the exponent of the lowest set bit; kNoBit where all are 0
  std::array<std::pair<int64_t, int64_t>, kNumOdd> odd{{{-1, -1}, {-1, -1}, {-1, -1}}};  ///< row and column
  int64_t num_rows = 0;
};

/// How far decoded rows are from those they were made of, by column, in sums in the order of rows.
struct ColumnErrors {
  explicit ColumnErrors(int64_t dim);
  /// Takes in the rows that follow, of float32 and as `codec` stores them. NaN and infinity that come back are no errors.
  void add(const RowCodec& codec, const float* rows, const std::byte* stored, int64_t count, int threads);

  int64_t dim;
  /// Of every column: its first finite number; sum and squares of differences from it, over finite numbers; squares of
  /// errors; the largest error; how many numbers are finite.
  std::array<Buffer<double>, 6> sums;
  int64_t num_rows = 0;
};

}  // namespace tiering
