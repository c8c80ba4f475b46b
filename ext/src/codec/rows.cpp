// Loops over the numbers of a row, each for any processor and for those of targets.hpp. The compiler makes the vectors,
// except of float16, for which AVX2's processors have instructions.
#include <cstring>
#include <tiering/codec/rows.hpp>
#include <tiering/errors.hpp>
#include <tiering/parallel.hpp>

#include "targets.hpp"

namespace tiering {
namespace {

using namespace codec;

template <typename T>
[[gnu::always_inline]] inline T load(const std::byte* from, int64_t i) {
  T value;
  std::memcpy(&value, from + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <typename T>
[[gnu::always_inline]] inline void store(std::byte* to, int64_t i, T value) {
  std::memcpy(to + i * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

/// Numbers [first, dim) of a row from one encoding to another, one of which is not scaled.
template <typename From, typename To>
[[gnu::always_inline]] inline void convert(const RowCodec& codec, const std::byte* __restrict from,
                                           std::byte* __restrict to, int64_t first = 0) {
  const float* const scale = codec.scale;
  const int32_t* const offset = codec.offset;
  for (int64_t i = first; i < codec.dim; ++i) {
    float by = 1;
    int32_t shift = 0;
    if constexpr (From::kScaled || To::kScaled) {
      by = scale[i];
      shift = offset[i];
    }
    store(to, i, To::encode(From::decode(load<typename From::Code>(from, i), by, shift), by, shift));
  }
}

template <typename From, typename To>
void convert_portable(const RowCodec& codec, const std::byte* from, std::byte* to) {
  convert<From, To>(codec, from, to);
}

#if defined(TIERING_AVX2)
constexpr int64_t kLanes = 8;

/// float16 by instructions of its own, eight numbers at a time; the rest of the row as everywhere.
template <typename From, typename To>
TIERING_AVX2 void convert_avx2(const RowCodec& codec, const std::byte* from, std::byte* to) {
  constexpr bool kFromHalf = std::is_same_v<From, Float16>, kToHalf = std::is_same_v<To, Float16>;
  int64_t first = 0;
  if constexpr (kFromHalf || kToHalf) {
    RowCodec part = codec;
    part.dim = kLanes;
    for (; first + kLanes <= codec.dim; first += kLanes) {
      alignas(32) std::byte numbers[kLanes * sizeof(float)];
      const std::byte* const codes = from + first * static_cast<int64_t>(sizeof(typename From::Code));
      std::byte* const out = to + first * static_cast<int64_t>(sizeof(typename To::Code));
      if constexpr (From::kScaled) part.scale = codec.scale + first, part.offset = codec.offset + first;
      if constexpr (kFromHalf)
        _mm256_store_ps(reinterpret_cast<float*>(numbers),
                        _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes))));
      else
        convert<From, Float32>(part, codes, numbers);
      if constexpr (kToHalf)
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out),
                         _mm256_cvtps_ph(_mm256_load_ps(reinterpret_cast<const float*>(numbers)),
                                         _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
      else
        convert<Float32, To>(part, numbers, out);
    }
  }
  convert<From, To>(codec, from, to, first);
}
#endif

template <typename From, typename To>
RowLoop loop(bool portable) {
#if defined(TIERING_AVX2)
  if (has_avx2() && !portable) return convert_avx2<From, To>;
#endif
  (void)portable;
  return convert_portable<From, To>;
}

void copy_row(const RowCodec& codec, const std::byte* from, std::byte* to) {
  std::memcpy(to, from, static_cast<size_t>(codec.out_bytes()));
}

constexpr int64_t kFewestBytes = 1 << 20;  // of a thread

int team(int64_t bytes, int threads) { return static_cast<int>(std::clamp<int64_t>(bytes / kFewestBytes, 1, threads)); }

}  // namespace

Encoding parse_encoding(const std::string& name, int count) {
  static constexpr const char* kNames[kNumEncodings] = {"float32", "float16", "bfloat16", "float8_e4m3", "int8"};
  const auto* const found = std::find(kNames, kNames + count, name);
  TIERING_EXPECT(found != kNames + count, "no encoding '", name, "'");
  return static_cast<Encoding>(found - kNames);
}

RowLoop decode_loop(const RowCodec& codec, bool portable) {
  if (codec.stored == codec.delivered) return copy_row;
  return visit(codec.stored, [&](auto from) -> RowLoop {
    using From = decltype(from);
    if (codec.delivered == Encoding::float16) return loop<From, Float16>(portable);
    if (codec.delivered == Encoding::bfloat16) return loop<From, BFloat16>(portable);
    return loop<From, Float32>(portable);
  });
}

RowLoop encode_loop(Encoding stored, bool portable) {
  return visit(stored, [&](auto to) { return loop<Float32, decltype(to)>(portable); });
}

void encode_rows(const RowCodec& codec, const float* rows, int64_t num_rows, std::byte* out, int threads) {
  const RowLoop encode = encode_loop(codec.stored);
  const int64_t bytes = codec.stored_bytes(), used = codec.dim * code_bytes(codec.stored);
  for_cuts(team(num_rows * codec.dim * 4, threads), num_rows, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      encode(codec, reinterpret_cast<const std::byte*>(rows + i * codec.dim), out + i * bytes);
      std::memset(out + i * bytes + used, 0, static_cast<size_t>(bytes - used));
    }
  });
}

void decode_rows(const RowCodec& codec, const std::byte* stored, int64_t num_rows, std::byte* out, int threads) {
  const RowLoop decode = decode_loop(codec);
  for_cuts(team(num_rows * codec.out_bytes(), threads), num_rows, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) decode(codec, stored + i * codec.stored_bytes(), out + i * codec.out_bytes());
  });
}

}  // namespace tiering
