// Loops of this folder are compiled for any processor, and on x86-64 again for those with AVX2 and F16C, which the program
// asks for as it runs.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#define TIERING_AVX2 [[gnu::target("avx2,f16c")]]
#define TIERING_HAS_AVX2 (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c"))
#else
#define TIERING_AVX2
#define TIERING_HAS_AVX2 false
#endif

namespace tiering {

inline bool has_avx2() {
  static const bool kFound = TIERING_HAS_AVX2;
  return kFound;
}

/// A loop that is always inlined, here into a function for those processors.
template <auto kLoop, typename... Args>
TIERING_AVX2 void avx2_loop(Args... args) {
  kLoop(args...);
}

template <auto kLoop, typename... Args>
void run_loop(Args... args) {
  has_avx2() ? avx2_loop<kLoop>(args...) : kLoop(args...);
}

}  // namespace tiering
