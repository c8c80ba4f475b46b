// Loops of the codecs for any processor against those for this one, bit for bit: every code, numbers of any bits, rows of
// any length at any address; and whole numbers that both have to find.
#include <cmath>
#include <cstring>
#include <random>
#include <tiering/codec/rows.hpp>
#include <vector>

#include "check.hpp"

using namespace tiering;

namespace {

using Bytes = std::vector<std::byte>;

struct Table {
  std::vector<float> scale;
  std::vector<int32_t> offset;
  RowCodec codec;

  Table(Encoding stored, Encoding delivered, int64_t dim) : codec{stored, delivered, dim, nullptr, nullptr} {
    for (int64_t i = 0; i < dim; ++i) {
      scale.push_back(std::ldexp(1.0F + (stored == Encoding::int8 ? 0.37F : 0), static_cast<int>(i * 7 % 200) - 100));
      offset.push_back(static_cast<int32_t>(i * 1'234'567 % 16'000'000) - 8'000'000);
    }
    codec.scale = scale.data();
    codec.offset = offset.data();
  }
};

/// What a loop makes of a row that begins `shift` bytes behind a line, and that it writes nothing else.
Bytes run(RowLoop loop, const RowCodec& codec, const Bytes& row, int64_t bytes, size_t shift) {
  Bytes from(row.size() + shift + 1), to(static_cast<size_t>(bytes) + shift + 64, std::byte{0xa5});
  std::copy(row.begin(), row.end(), from.begin() + static_cast<std::ptrdiff_t>(shift));
  loop(codec, from.data() + shift, to.data() + shift);
  for (size_t i = 0; i < to.size(); ++i)
    CHECK((i >= shift && i < shift + static_cast<size_t>(bytes)) || to[i] == std::byte{0xa5});
  return {to.begin() + static_cast<std::ptrdiff_t>(shift), to.end() - 64};
}

Bytes random_bytes(int64_t count, std::mt19937_64& random) {
  Bytes row(static_cast<size_t>(count));
  for (auto& byte : row) byte = static_cast<std::byte>(random());
  return row;
}

void test_loops(Encoding stored, Encoding delivered, int64_t dim, std::mt19937_64& random) {
  const Table table(stored, delivered, dim);
  const size_t shift = random() % 8;
  const Bytes codes = random_bytes(dim * code_bytes(stored), random);
  const RowLoop portable = row_loop(stored, delivered, true), best = row_loop(stored, delivered);
  CHECK(run(portable, table.codec, codes, table.codec.out_bytes(), shift) ==
        run(best, table.codec, codes, table.codec.out_bytes(), shift));
  const Bytes numbers = random_bytes(dim * 4, random);
  const int64_t used = dim * code_bytes(stored);
  CHECK(run(row_loop(Encoding::float32, stored, true), table.codec, numbers, used, shift) ==
        run(row_loop(Encoding::float32, stored), table.codec, numbers, used, shift));
}

/// Every code of two bytes, or every pair of codes of one.
void test_codes(Encoding stored, Encoding delivered) {
  const int64_t dim = 65536 * 2 / code_bytes(stored);
  const Table table(stored, delivered, dim);
  Bytes codes(65536 * 2);
  for (uint32_t code = 0; code < 65536; ++code) {
    const auto half = static_cast<uint16_t>(code);
    std::memcpy(codes.data() + 2 * code, &half, 2);
  }
  CHECK(run(row_loop(stored, delivered, true), table.codec, codes, table.codec.out_bytes(), 0) ==
        run(row_loop(stored, delivered), table.codec, codes, table.codec.out_bytes(), 0));
}

/// Columns of a table whose fit is known, with any number of threads.
void test_fit(int threads) {
  constexpr int64_t kDim = 70, kRows = 9;
  std::vector<float> rows(kDim * kRows);
  for (int64_t i = 0; i < kRows; ++i)
    for (int64_t c = 0; c < kDim; ++c) rows[static_cast<size_t>(i * kDim + c)] = static_cast<float>((i - 4) * (c << 4));
  rows[3 * kDim + 65] = 65520;
  rows[5 * kDim + 2] = 0x1p126F;
  rows[7 * kDim + 69] = -INFINITY;
  ColumnFit fit(kDim);
  fit.add(rows.data(), 4, threads);
  fit.add(rows.data() + 4 * kDim, kRows - 4, threads);
  CHECK(fit.num_rows == kRows);
  CHECK(fit.low[33] == -4 * 33 * 16 && fit.high[33] == 4 * 33 * 16 && fit.least[33] == 33 * 16);
  CHECK(fit.lowest_bit[33] == 4 && fit.lowest_bit[32] == 9 && fit.lowest_bit[0] == ColumnFit::kNoBit);
  CHECK(fit.odd[ColumnFit::kBeyondHalf].first == 3 && fit.odd[ColumnFit::kBeyondHalf].second == 65);
  CHECK(fit.odd[ColumnFit::kHuge].first == 5 && fit.odd[ColumnFit::kHuge].second == 2);
  CHECK(fit.odd[ColumnFit::kNotFinite].first == 7 && fit.odd[ColumnFit::kNotFinite].second == 69);
}

/// Stored rows end in zeros, and many threads write what one does.
void test_rows(Encoding stored, std::mt19937_64& random) {
  constexpr int64_t kDim = 333, kRows = 4000;
  const Table table(stored, Encoding::float32, kDim);
  std::vector<float> rows(kDim * kRows);
  for (auto& x : rows) x = static_cast<float>(random() % 1000) / 10;
  const int64_t bytes = table.codec.stored_bytes();
  std::vector<std::byte> one(static_cast<size_t>(kRows * bytes), std::byte{0xff}), many(one);
  encode_rows(table.codec, rows.data(), kRows, one.data(), 1);
  encode_rows(table.codec, rows.data(), kRows, many.data(), 3);
  CHECK(one == many);
  for (int64_t i = kDim * code_bytes(stored); i < bytes; ++i)
    CHECK(one[static_cast<size_t>(bytes + i)] == std::byte{0});
  std::vector<std::byte> back(static_cast<size_t>(kRows * kDim * 4)), same(back);
  decode_rows(table.codec, one.data(), kRows, back.data(), 1);
  decode_rows(table.codec, one.data(), kRows, same.data(), 3);
  CHECK(back == same);
}

}  // namespace

int main() {
  std::mt19937_64 random(1);
  for (int stored = 0; stored < kNumEncodings; ++stored) {
    for (int delivered = 0; delivered < kNumDelivered; ++delivered) {
      for (int64_t dim = 0; dim < 70; ++dim)
        test_loops(static_cast<Encoding>(stored), static_cast<Encoding>(delivered), dim, random);
      test_codes(static_cast<Encoding>(stored), static_cast<Encoding>(delivered));
    }
    test_rows(static_cast<Encoding>(stored), random);
  }
  for (const int threads : {1, 2, 9}) test_fit(threads);
  std::cout << "test_codec: ok\n";
  return 0;
}
