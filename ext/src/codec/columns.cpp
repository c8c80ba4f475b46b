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

/// Calls body(begin, end) for shares of the columns, of whole lines.
template <typename Body>
void for_columns(int64_t dim, int threads, Body&& body) {
  const int64_t lines = (dim + kColumnsOfLine - 1) / kColumnsOfLine;
  for_cuts(static_cast<int>(std::clamp<int64_t>(threads, 1, std::max<int64_t>(lines, 1))), lines,
           [&](int64_t begin, int64_t end) { body(begin * kColumnsOfLine, std::min(dim, end * kColumnsOfLine)); });
}

/// Columns [begin, end) of a fit, and the largest magnitude of these rows as bits.
struct Columns {
  float *low, *high, *least;
  int32_t* lowest_bit;
  uint32_t* top;
  int64_t begin, end;
};

/// The exponent of the lowest set bit of a number of these bits, without sign.
[[gnu::always_inline]] inline int32_t lowest_bit_of(uint32_t size) {
  const uint32_t exponent = size >> 23, fraction = size & 0x7fffff;
  const uint32_t digits = exponent > 0 ? fraction | 0x800000 : fraction;
  const uint32_t lowest = bits_of(static_cast<float>(static_cast<int32_t>(digits & (0 - digits)))) >> 23;
  const int32_t bit = static_cast<int32_t>(lowest + (exponent > 0 ? exponent : 1)) - (127 + 150);
  return size == 0 ? ColumnFit::kNoBit : bit;
}

[[gnu::always_inline]] inline void fit_row(const Columns& fit, const float* __restrict row) {
  float* __restrict const low = fit.low;
  float* __restrict const high = fit.high;
  float* __restrict const least = fit.least;
  int32_t* __restrict const lowest_bit = fit.lowest_bit;
  uint32_t* __restrict const top = fit.top;
  const int64_t end = fit.end;
  for (int64_t c = fit.begin; c < end; ++c) {
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

/// Sums of errors from the first of some columns on.
struct Sums {
  const double* first;
  double *sum, *squares, *error_squares, *worst;
};

[[gnu::always_inline]] inline void add_errors(const Sums& sums, const float* __restrict row,
                                              const float* __restrict back, int64_t count) {
  const double* __restrict const first = sums.first;
  double* __restrict const sum = sums.sum;
  double* __restrict const squares = sums.squares;
  double* __restrict const error_squares = sums.error_squares;
  double* __restrict const worst = sums.worst;
  for (int64_t c = 0; c < count; ++c) {
    const uint32_t size = bits_of(row[c]) & ~kSign, size_back = bits_of(back[c]) & ~kSign;
    const bool same = (row[c] == back[c]) | ((size > kInfinity) & (size_back > kInfinity));
    const double from_first = size < kInfinity ? double{row[c]} - first[c] : 0;
    const double error = same ? 0 : std::abs(double{row[c]} - double{back[c]});
    sum[c] += from_first;
    squares[c] += from_first * from_first;
    error_squares[c] += error * error;
    worst[c] = error > worst[c] ? error : worst[c];
  }
}

#if defined(TIERING_AVX2)
TIERING_AVX2 void fit_avx2(const Columns& fit, const float* row) { fit_row(fit, row); }
TIERING_AVX2 void add_errors_avx2(const Sums& sums, const float* row, const float* back, int64_t count) {
  add_errors(sums, row, back, count);
}
#define TIERING_BEST(portable, avx2, ...) (has_avx2() ? avx2(__VA_ARGS__) : portable(__VA_ARGS__))
#else
#define TIERING_BEST(portable, avx2, ...) portable(__VA_ARGS__)
#endif

bool is_odd(ColumnFit::Odd kind, uint32_t size) {
  if (kind == ColumnFit::kNotFinite) return size >= kInfinity;
  return size < kInfinity && size >= bits_of(kind == ColumnFit::kHuge ? 0x1p126f : 65520.0f);
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
  for_columns(dim, threads, [&](int64_t begin, int64_t end) {
    const Columns fit{low.data(), high.data(), least.data(), lowest_bit.data(), top.data(), begin, end};
    for (int64_t i = 0; i < count; ++i) TIERING_BEST(fit_row, fit_avx2, fit, rows + i * dim);
  });
  if (std::any_of(top.data(), top.data() + dim,
                  [](uint32_t size) { return is_odd(kBeyondHalf, size) || size >= kInfinity; }))
    find_odd(rows, count);
  num_rows += count;
}

void ColumnFit::find_odd(const float* rows, int64_t count) {
  for (int kind = 0; kind < kNumOdd; ++kind)
    for (int64_t i = 0; i < count * dim && odd[static_cast<size_t>(kind)].row < 0; ++i)
      if (is_odd(static_cast<Odd>(kind), bits_of(rows[i]) & ~kSign))
        odd[static_cast<size_t>(kind)] = {num_rows + i / dim, i % dim};
}

ColumnErrors::ColumnErrors(int64_t columns)
    : dim(columns),
      first(columns, 0),
      sum(columns, 0),
      squares(columns, 0),
      error_squares(columns, 0),
      worst(columns, 0) {}

void ColumnErrors::add(const RowCodec& codec, const float* rows, const std::byte* stored, int64_t count, int threads) {
  const int64_t number = code_bytes(codec.stored), stride = codec.stored_bytes();
  if (num_rows == 0 && count > 0)
    for (int64_t c = 0; c < dim; ++c) first[c] = std::isfinite(rows[c]) ? double{rows[c]} : 0;
  for_columns(dim, threads, [&](int64_t begin, int64_t end) {
    RowCodec part = codec;
    part.dim = end - begin;
    part.delivered = Encoding::float32;
    if (part.scale != nullptr) part.scale += begin, part.offset += begin;
    const RowLoop decode = decode_loop(part);
    Buffer<float> decoded(part.dim);
    const Sums sums{first.data() + begin, sum.data() + begin, squares.data() + begin, error_squares.data() + begin,
                    worst.data() + begin};
    for (int64_t i = 0; i < count; ++i) {
      decode(part, stored + i * stride + begin * number, reinterpret_cast<std::byte*>(decoded.data()));
      TIERING_BEST(add_errors, add_errors_avx2, sums, rows + i * dim + begin, decoded.data(), part.dim);
    }
  });
  num_rows += count;
}

}  // namespace tiering
