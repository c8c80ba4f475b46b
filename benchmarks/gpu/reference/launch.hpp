// How the reference kernels are launched; tests define these for the processor.
#pragma once
#ifndef REFERENCE_LAUNCH
#include <cuda_runtime.h>
/// Launch a kernel on a stream; its arguments follow.
#define REFERENCE_LAUNCH(kernel, blocks, threads, stream, ...) kernel<<<blocks, threads, 0, stream>>>(__VA_ARGS__)
#endif
