// The qualifier of functions that host and device share: nvcc then refuses, in code of the device, any function that
// is not marked, those of the standard library among them. (As constexpr functions it compiles some of them to nothing.)
#pragma once

#ifdef __CUDACC__
#define TIERING_SHARED __host__ __device__
#else
#define TIERING_SHARED
#endif
