// What is written before functions of kernels.
#pragma once

// The kernels are also compiled for the processor, against a runtime that simulates a device (tests/cuda/simulator).
#ifdef __CUDACC__
#define TIERING_DEVICE __device__ __forceinline__
#define TIERING_UNROLL _Pragma("unroll")
#else
#define TIERING_DEVICE inline
#define TIERING_UNROLL
#endif
// What constexpr functions call: nvcc compiles those for both sides, and here the host's side is never run.
#ifdef __CUDACC__
#define TIERING_BOTH __host__ __device__ __forceinline__
#else
#define TIERING_BOTH inline
#endif
#if defined(__CUDACC__) && !defined(__CUDA_ARCH__)
#define TIERING_ON_DEVICE(expression) 0
#else
#define TIERING_ON_DEVICE(expression) (expression)
#endif
