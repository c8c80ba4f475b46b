// Loops over the numbers of a row, each for any processor and for those of targets.hpp. The compiler makes the vectors,
// except of float16, for which AVX2's processors have instructions.
#include <tiering/codec/rows.hpp>
#include <tiering/errors.hpp>
#include <tiering/parallel.hpp>

#include "targets.hpp"

namespace tiering {
namespace {

using namespace codec;

/// The numbers of a row from one encoding to another.
template <typename From, typename To>
[[gnu::always_inline]] inline void convert(const RowCodec& codec, const std::byte* __restrict from,
                                           std::byte* __restrict to) {
  constexpr bool kScaled = From::kScaled || To::kScaled;
  const float* const scale = codec.scale;
  const int32_t* const offset = codec.offset;
  for (int64_t i = 0; i < codec.dim; ++i) {
    typename From::Code code;
    std::memcpy(&code, from + i * static_cast<int64_t>(sizeof(code)), sizeof(code));
    const float by = kScaled ? scale[i] : 1;
    const int32_t shift = kScaled ? offset[i] : 0;
    const typename To::Code out = To::encode(From::decode(code, by, shift), by, shift);
    std::memcpy(to + i * static_cast<int64_t>(sizeof(out)), &out, sizeof(out));
  }
}

/// float16 by instructions of its own, eight numbers at a time; what is not from or to float32 goes through it.
template <typename From, typename To>
TIERING_AVX2 void convert_avx2(const RowCodec& codec, const std::byte* from, std::byte* to) {
  constexpr int64_t kFrom = sizeof(typename From::Code), kTo = sizeof(typename To::Code);
  const int64_t dim = codec.dim;
  int64_t done = 0;
#if defined(__x86_64__)
  constexpr bool kFromHalf = std::is_same_v<From, Float16>, kToHalf = std::is_same_v<To, Float16>;
  constexpr int64_t kLanes = 8, kBlock = 128;
  if constexpr (kFromHalf && std::is_same_v<To, Float32>) {
    for (; done + kLanes <= dim; done += kLanes)
      _mm256_storeu_ps(reinterpret_cast<float*>(to) + done,
                       _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 2 * done))));
  } else if constexpr (kToHalf && std::is_same_v<From, Float32>) {
    for (; done + kLanes <= dim; done += kLanes)
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 2 * done),
                       _mm256_cvtps_ph(_mm256_loadu_ps(reinterpret_cast<const float*>(from) + done),
                                       _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  } else if constexpr (kFromHalf || kToHalf) {
    std::byte numbers[kBlock * sizeof(float)];
    for (int64_t count; (count = std::min(kBlock, dim - done)) > 0; done += count) {
      const RowCodec part = codec.columns(done, count);
      convert_avx2<From, Float32>(part, from + done * kFrom, numbers);
      convert_avx2<Float32, To>(part, numbers, to + done * kTo);
    }
  }
#endif
  convert<From, To>(codec.columns(done, dim - done), from + done * kFrom, to + done * kTo);
}

constexpr int64_t kFewestBytes = 1 << 20;  // of a thread

/// Calls body(i) for rows that have `bytes` as they are delivered.
template <typename Body>
void for_rows(int64_t num_rows, int64_t bytes, int threads, Body&& body) {
  const int64_t team = std::clamp<int64_t>(num_rows * bytes / kFewestBytes, 1, threads);
  for_cuts(static_cast<int>(team), num_rows, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) body(i);
  });
}

}  // namespace

Encoding parse_encoding(const std::string& name, int count) {
  static constexpr const char* kNames[kNumEncodings] = {"float32", "float16", "bfloat16", "float8_e4m3", "int8"};
  const auto* const found = std::find(kNames, kNames + count, name);
  TIERING_EXPECT(found != kNames + count, "no encoding '", name, "'");
  return static_cast<Encoding>(found - kNames);
}

RowLoop row_loop(Encoding from, Encoding to, bool portable) {
  return visit(from, [&](auto stored) {
    return visit(to, [&](auto delivered) -> RowLoop {
      if (has_avx2() && !portable) return convert_avx2<decltype(stored), decltype(delivered)>;
      return convert<decltype(stored), decltype(delivered)>;
    });
  });
}

void encode_rows(const RowCodec& codec, const float* rows, int64_t num_rows, std::byte* out, int threads) {
  const RowLoop encode = row_loop(Encoding::float32, codec.stored);
  const int64_t bytes = codec.stored_bytes(), used = codec.dim * code_bytes(codec.stored);
  for_rows(num_rows, codec.dim * 4, threads, [&](int64_t i) {
    encode(codec, reinterpret_cast<const std::byte*>(rows + i * codec.dim), out + i * bytes);
    std::memset(out + i * bytes + used, 0, static_cast<size_t>(bytes - used));
  });
}

void decode_rows(const RowCodec& codec, const std::byte* stored, int64_t num_rows, std::byte* out, int threads) {
  const RowWriter rows(codec);
  for_rows(num_rows, rows.out_bytes, threads,
           [&](int64_t i) { rows.write(out + i * rows.out_bytes, stored + i * rows.row_bytes); });
}

}  // namespace tiering
