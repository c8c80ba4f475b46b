// Code of this folder is compiled for any processor, and on x86-64 again for those with AVX2 and F16C, which the program
// asks for as it runs: loops are inlined into a function of each kind.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>

#define TIERING_AVX2 [[gnu::target("avx2,f16c")]]

namespace tiering {

inline bool has_avx2() {
  static const bool kFound = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
  return kFound;
}

}  // namespace tiering
#endif
