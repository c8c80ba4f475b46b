// Stores that go round the cache: for lines that are written once, whole, and read much later.
#pragma once

#include <cstddef>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace tiering {

/// Copies `bytes` (a multiple of 64) to `to`, which is aligned to 64 bytes, without reading the target's
/// lines.
inline void stream_lines(void* to, const void* from, size_t bytes) {
#if defined(__SSE2__)
  auto* target = static_cast<__m128i*>(to);
  const auto* source = static_cast<const __m128i*>(from);
  for (size_t i = 0; i < bytes / sizeof(__m128i); ++i)
    _mm_stream_si128(target + i, _mm_load_si128(source + i));
#else
  std::memcpy(to, from, bytes);
#endif
}

/// Makes this thread's streamed lines visible to others. Call before the thread ends its phase.
inline void stream_fence() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

}  // namespace tiering
