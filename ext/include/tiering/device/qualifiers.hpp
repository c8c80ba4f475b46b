// The qualifier of functions that host and device share: nvcc then refuses, in code of the device, any function that
// is not marked, those of the standard library among them. (As constexpr functions it compiles some of them to nothing.)
#pragma once

#ifdef __CUDACC__
#define TIERING_SHARED __host__ __device__
#else
#define TIERING_SHARED
#endif

// The kernels are also compiled for the processor, against a runtime that simulates a device (tests/cuda/simulator).
#ifdef __CUDACC__
#define TIERING_DEVICE __device__ __forceinline__
#else
#define TIERING_DEVICE inline
#endif
#ifdef __CUDA_ARCH__  // the host's side of shared functions is compiled too, by a compiler that does not know the pragma
#define TIERING_UNROLL _Pragma("unroll")
#else
#define TIERING_UNROLL
#endif
// For what shared functions (TIERING_SHARED) call: nvcc compiles those for both sides, and the host's side of such an
// expression is never run.
#if defined(__CUDACC__) && !defined(__CUDA_ARCH__)
#define TIERING_ON_DEVICE(expression) 0
#else
#define TIERING_ON_DEVICE(expression) (expression)
#endif
