// The CUDA runtime on host threads, for tests of the host's logic without a GPU: the types and functions that the CUDA
// part and its tests use. Values are those of CUDA 13.
//
// Approach:   device memory is host memory that other processes can map, a stream is a thread with a queue, a kernel is
//             a loop over its blocks by several threads. The sanitizers see what kernels and copies do: accesses
//             outside an allocation, races between blocks, between streams, and between a stream and the host.
// Not seen:   the host reading device memory, a kernel reading memory that is not registered, races within a block
//             (its threads run one after the other: warps have one lane).
// Settings:   environment variables, read at the first call:
//               TIERING_SIMULATED_DEVICES   number of devices, 1
//               TIERING_SIMULATED_DRIVER    "old": a driver too old for the runtime
//               TIERING_SIMULATED_PEERS     "off": no device can read the memory of another
//               TIERING_SIMULATED_IPC       "off": other processes cannot open the memory of devices
//             While running: simulator.hpp.
#pragma once

#include <cstddef>

#define CUDART_VERSION 13000

/// Errors: name, number, words.
#define SIMULATED_ERRORS(X)                                                                             \
  X(cudaSuccess, 0, "no error")                                                                         \
  X(cudaErrorInvalidValue, 1, "invalid argument")                                                       \
  X(cudaErrorMemoryAllocation, 2, "out of memory")                                                      \
  X(cudaErrorInitializationError, 3, "initialization error")                                            \
  X(cudaErrorInvalidConfiguration, 9, "invalid configuration argument")                                 \
  X(cudaErrorInsufficientDriver, 35, "CUDA driver version is insufficient for CUDA runtime version")    \
  X(cudaErrorInvalidDeviceFunction, 98, "invalid device function")                                      \
  X(cudaErrorNoDevice, 100, "no CUDA-capable device is detected")                                       \
  X(cudaErrorInvalidDevice, 101, "invalid device ordinal")                                              \
  X(cudaErrorDeviceUninitialized, 201, "invalid device context")                                        \
  X(cudaErrorPeerAccessUnsupported, 217, "peer access is not supported between these two devices")      \
  X(cudaErrorInvalidResourceHandle, 400, "invalid resource handle")                                     \
  X(cudaErrorHostMemoryAlreadyRegistered, 712, "part or all of the memory range is already mapped")     \
  X(cudaErrorHostMemoryNotRegistered, 713, "pointer does not correspond to a registered memory region") \
  X(cudaErrorLaunchFailure, 719, "unspecified launch failure")                                          \
  X(cudaErrorNotSupported, 801, "operation not supported")

enum cudaError_t {
#define SIMULATED_ERROR(name, number, words) name = number,
  SIMULATED_ERRORS(SIMULATED_ERROR)
#undef SIMULATED_ERROR
};

enum cudaMemcpyKind { cudaMemcpyDefault = 4 };
enum cudaDeviceAttr {
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrPageableMemoryAccessUsesHostPageTables = 100,
  cudaDevAttrGPUDirectRDMASupported = 116,
  cudaDevAttrGPUDirectRDMAFlushWritesOptions = 117,
  cudaDevAttrGPUDirectRDMAWritesOrdering = 118,
};
inline constexpr int cudaGPUDirectRDMAWritesOrderingOwner = 100, cudaFlushGPUDirectRDMAWritesOptionHost = 1;
enum cudaFlushGPUDirectRDMAWritesTarget { cudaFlushGPUDirectRDMAWritesTargetCurrentDevice = 0 };
enum cudaFlushGPUDirectRDMAWritesScope { cudaFlushGPUDirectRDMAWritesToOwner = 100 };
enum cudaStreamCaptureMode { cudaStreamCaptureModeGlobal = 0, cudaStreamCaptureModeRelaxed = 2 };
enum cudaDriverEntryPointQueryResult { cudaDriverEntryPointSuccess = 0, cudaDriverEntryPointSymbolNotFound = 1 };

inline constexpr unsigned cudaEnableDefault = 0, cudaIpcMemLazyEnablePeerAccess = 1, cudaStreamNonBlocking = 1;
inline constexpr unsigned cudaEventBlockingSync = 1, cudaEventDisableTiming = 2;
inline constexpr unsigned cudaHostAllocPortable = 1, cudaHostAllocMapped = 2;
inline constexpr unsigned cudaHostRegisterPortable = 1, cudaHostRegisterMapped = 2, cudaHostRegisterIoMemory = 4,
                          cudaHostRegisterReadOnly = 8;

using cudaStream_t = struct CUstream_st*;
using cudaEvent_t = struct CUevent_st*;

struct dim3 {
  unsigned x;
  constexpr dim3(unsigned x = 1) : x(x) {}
};

struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  cudaStream_t stream;
};

struct cudaDeviceProp {
  char name[256];
  size_t totalGlobalMem;
  int major, minor, multiProcessorCount;
};

struct cudaIpcMemHandle_t {
  char reserved[64];
};

extern "C" {

// Errors: the last one of a thread stays until it is got.
cudaError_t cudaGetLastError();
const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);

// Devices.
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaRuntimeGetVersion(int* version);
/// Finds cuDeviceGet, cuDevicePrimaryCtxRetain, cuCtxPushCurrent and cuCtxPopCurrent.
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned version,
                                             unsigned long long flags, cudaDriverEntryPointQueryResult* result);
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaDeviceFlushGPUDirectRDMAWrites(cudaFlushGPUDirectRDMAWritesTarget target,
                                               cudaFlushGPUDirectRDMAWritesScope scope);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaDeviceGetPCIBusId(char* name, int bytes, int device);
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode);

// Memory.
cudaError_t cudaMemGetInfo(size_t* free, size_t* total);
cudaError_t cudaMalloc(void** memory, size_t bytes);
cudaError_t cudaFree(void* memory);
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void* memory);
cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned flags);
cudaError_t cudaHostUnregister(void* memory);
cudaError_t cudaHostGetDevicePointer(void** there, void* memory, unsigned flags);
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream);

// Memory in several processes.
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* memory);
cudaError_t cudaIpcOpenMemHandle(void** memory, cudaIpcMemHandle_t handle, unsigned flags);
cudaError_t cudaIpcCloseMemHandle(void* memory);

// Streams, none of which waits for the null stream, and events.
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventDestroy(cudaEvent_t event);

}  // extern "C"
