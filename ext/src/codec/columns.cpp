// Statistics of columns while rows pass. Threads share the columns, so that every sum has one order.
#include <cmath>
#include <limits>
#include <tiering/codec/rows.hpp>
#include <tiering/parallel.hpp>

#include "targets.hpp"

namespace tiering {
namespace {

using namespace codec;

constexpr int64_t kColumnsOfLine = 16;
constexpr uint32_t kOddFrom[ColumnFit::kNumOdd] = {kInfinity, bits_of(0x1p126f), bits_of(65520.0f)};  // magnitudes

/// Calls body(begin, count) for shares of the columns, of whole lines.
template <typename Body>
void for_columns(int64_t dim, int threads, Body&& body) {
  const int64_t lines = (dim + kColumnsOfLine - 1) / kColumnsOfLine;
  for_cuts(static_cast<int>(std::clamp<int64_t>(lines, 1, threads)), lines, [&](int64_t begin, int64_t end) {
    body(begin * kColumnsOfLine, std::min(dim, end * kColumnsOfLine) - begin * kColumnsOfLine);
  });
}

/// The exponent of the lowest set bit of a number of these bits, without sign.
[[gnu::always_inline]] inline int32_t lowest_bit_of(uint32_t size) {
  const uint32_t exponent = size >> 23, fraction = size & 0x7fffff;
  const uint32_t digits = exponent > 0 ? fraction | 0x800000 : fraction;
  const uint32_t lowest = bits_of(static_cast<float>(static_cast<int32_t>(digits & (0 - digits)))) >> 23;
  const int32_t bit = static_cast<int32_t>(lowest + (exponent > 0 ? exponent : 1)) - (127 + 150);
  return size == 0 ? ColumnFit::kNoBit : bit;
}

/// Takes some columns of a row into a fit; `top` is the largest magnitude, as bits.
[[gnu::always_inline]] inline void fit_row(int64_t count, const float* __restrict row, float* __restrict low,
                                           float* __restrict high, float* __restrict least,
                                           int32_t* __restrict lowest_bit, uint32_t* __restrict top) {
  for (int64_t c = 0; c < count; ++c) {
    const float x = row[c];
    const uint32_t size = bits_of(x) & ~kSign, smallest = bits_of(least[c]);
    const int32_t bit = lowest_bit_of(size);
    low[c] = x < low[c] ? x : low[c];
    high[c] = x > high[c] ? x : high[c];
    least[c] = of_bits((size != 0) & (size < smallest) ? size : smallest);
    lowest_bit[c] = bit < lowest_bit[c] ? bit : lowest_bit[c];
    top[c] = size > top[c] ? size : top[c];
  }
}

constexpr int64_t kRowsAtOnce = 4;  // sums of a column stay in registers for so many

/// Adds the errors of some rows, of which none has NaN or infinity if `kFinite`.
template <int64_t kRows, bool kFinite>
[[gnu::always_inline]] inline void add_errors(int64_t count, const float* __restrict row, int64_t stride,
                                              const float* __restrict back, const double* __restrict first,
                                              double* __restrict sum, double* __restrict squares,
                                              double* __restrict error_squares, double* __restrict worst,
                                              double* __restrict numbers) {
  for (int64_t c = 0; c < count; ++c) {
    double of_sum = sum[c], of_squares = squares[c], of_errors = error_squares[c], most = worst[c], n = numbers[c];
#pragma GCC unroll 4
    for (int64_t i = 0; i < kRows; ++i) {
      const float x = row[i * stride + c], y = back[i * count + c];
      const uint32_t size = bits_of(x) & ~kSign, size_back = bits_of(y) & ~kSign;
      const bool finite = kFinite || size < kInfinity;
      const bool same = !kFinite && ((x == y) | ((size > kInfinity) & (size_back > kInfinity)));
      const double from_first = finite ? double{x} - first[c] : 0;
      const double error = same ? 0 : std::abs(double{x} - double{y});
      of_sum += from_first;
      of_squares += from_first * from_first;
      of_errors += error * error;
      most = error > most ? error : most;
      n += finite ? 1 : 0;
    }
    sum[c] = of_sum, squares[c] = of_squares, error_squares[c] = of_errors, worst[c] = most, numbers[c] = n;
  }
}

}  // namespace

ColumnFit::ColumnFit(int64_t columns)
    : dim(columns),
      low(columns, std::numeric_limits<float>::infinity()),
      high(columns, -std::numeric_limits<float>::infinity()),
      least(columns, std::numeric_limits<float>::infinity()),
      lowest_bit(columns, kNoBit) {}

void ColumnFit::add(const float* rows, int64_t count, int threads) {
  Buffer<uint32_t> top(dim, 0);
  for_columns(dim, threads, [&](int64_t at, int64_t columns) {
    for (int64_t i = 0; i < count; ++i)
      run_loop<fit_row>(columns, rows + i * dim + at, low.data() + at, high.data() + at, least.data() + at,
                        lowest_bit.data() + at, top.data() + at);
  });
  uint32_t largest = 0;
  for (const uint32_t size : top.span()) largest = std::max(largest, size);
  for (size_t kind = 0; kind < kNumOdd; ++kind)
    for (int64_t i = 0; largest >= kOddFrom[kind] && odd[kind].first < 0 && i < count * dim; ++i)
      if (const uint32_t size = bits_of(rows[i]) & ~kSign;
          size >= kOddFrom[kind] && (kind == kNotFinite || size < kInfinity))
        odd[kind] = {num_rows + i / dim, i % dim};
  num_rows += count;
}

ColumnErrors::ColumnErrors(int64_t columns) : dim(columns) {
  for (auto& each : sums) each = Buffer<double>(columns, 0);
}

void ColumnErrors::add(const RowCodec& codec, const float* rows, const std::byte* stored, int64_t count, int threads) {
  for_columns(dim, threads, [&](int64_t at, int64_t columns) {
    auto& [first, sum, squares, error_squares, worst, numbers] = sums;
    for (int64_t c = at; c < at + columns; ++c) {
      int64_t i = numbers[c] > 0 ? count : 0;
      while (i < count && !std::isfinite(rows[i * dim + c])) ++i;
      if (i < count) first[c] = rows[i * dim + c];
    }
    RowCodec part = codec.columns(at, columns);
    part.delivered = Encoding::float32;
    const RowWriter decoder(part);
    const bool scaled = codec::visit(codec.stored, [](auto kind) { return kind.kScaled; });  // refuses NaN, infinity
    Buffer<float> decoded(kRowsAtOnce * columns);
    const auto add_rows = [&]<int64_t kRows>(int64_t i) {
      for (int64_t k = 0; k < kRows; ++k)
        decoder.write(reinterpret_cast<std::byte*>(decoded.data() + k * columns),
                      stored + (i + k) * codec.stored_bytes() + at * code_bytes(codec.stored));
      const auto run = [&]<bool kFinite>() {
        run_loop<add_errors<kRows, kFinite>>(columns, rows + i * dim + at, dim, decoded.data(), first.data() + at,
                                             sum.data() + at, squares.data() + at, error_squares.data() + at,
                                             worst.data() + at, numbers.data() + at);
      };
      scaled ? run.template operator()<true>() : run.template operator()<false>();
    };
    int64_t i = 0;
    for (; i + kRowsAtOnce <= count; i += kRowsAtOnce) add_rows.template operator()<kRowsAtOnce>(i);
    for (; i < count; ++i) add_rows.template operator()<1>(i);
  });
  num_rows += count;
}

}  // namespace tiering
