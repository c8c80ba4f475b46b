// The simulated CUDA runtime in one process: kernels, streams, events, memory and copies.
#include <cuda_runtime.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <latch>
#include <numeric>
#include <simulator.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "test_support.hpp"

namespace {

// ---- Kernels ----

__global__ void __launch_bounds__(1024) add_index(int* values, const int64_t count, unsigned long long* sum) {
  const int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (at >= count) return;
  __stcs(values + at, __ldcs(values + at) + static_cast<int>(at));
  atomicAdd(sum, static_cast<unsigned long long>(at));
}

__global__ void everything_once(unsigned* visits) {
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  ++visits[block * blockDim.x * blockDim.y * blockDim.z + thread];
}

__global__ void reductions(unsigned* words) {
  const unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
  atomicMin(words, at);
  atomicMax(words + 1, at);
  atomicOr(words + 2, 1U << (at % 32));
  if (__ldcg(words + 3) == 0 && atomicCAS(words + 3, 0U, at + 1) == 0) atomicExch(words + 4, at + 1);
}

__global__ void count_bits(int* counts) {
  counts[0] = __popc(0xf0U);
  counts[1] = __clz(1);
  counts[2] = __clz(0);
  counts[3] = __clzll(1);
  counts[4] = __ffs(8);
  counts[5] = __ffs(0);
}

void test_launch() {
  cudaStream_t stream = nullptr;
  CHECK_CUDA(cudaStreamCreate(&stream));
  constexpr size_t kCount = 130 * 1024 - 5;
  int* const values = device_array<int>(kCount);
  auto* const sum = device_array<unsigned long long>(1);
  CHECK(content(values, 1)[0] == static_cast<int>(0xcdcdcdcd));
  CHECK_CUDA(cudaMemsetAsync(values, 0, kCount * sizeof(int), stream));
  CHECK_CUDA(cudaMemsetAsync(sum, 0, sizeof *sum, stream));
  const auto config = shape(130, 1024, stream);
  CHECK_CUDA(cudaLaunchKernelEx(&config, add_index, values, int64_t{kCount}, sum));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  std::vector<int> expected(kCount);
  std::iota(expected.begin(), expected.end(), 0);
  CHECK(content(values, kCount) == expected);
  CHECK(content(sum, 1)[0] == kCount * (kCount - 1) / 2);

  unsigned* const visits = device_array<unsigned>(6 * 24);
  CHECK_CUDA(cudaMemset(visits, 0, 6 * 24 * sizeof(unsigned)));
  const auto deep = shape({3, 2, 1}, {2, 3, 4}, nullptr);
  CHECK_CUDA(cudaLaunchKernelEx(&deep, everything_once, visits));
  CHECK(content(visits, 6 * 24) == std::vector<unsigned>(6 * 24, 1));

  const std::vector<unsigned> begin{~0U, 0, 0, 0, 0};
  CHECK_CUDA(cudaMemcpy(visits, begin.data(), 20, cudaMemcpyHostToDevice));
  const auto wide = shape(8, 32, stream);
  CHECK_CUDA(cudaLaunchKernelEx(&wide, reductions, visits));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  const auto found = content(visits, 5);
  CHECK(found[0] == 0 && found[1] == 255 && found[2] == ~0U && found[3] != 0 && found[4] == found[3]);

  for (const auto& [grid, block] : std::vector<std::pair<dim3, dim3>>{
           {0, 32}, {1, 0}, {1, 1025}, {1, dim3(32, 33)}, {dim3(1, 65536), 1}, {1, dim3(1, 1, 65)}}) {
    const auto impossible = shape(grid, block, stream);
    CHECK(refused_at(cudaLaunchKernelEx(&impossible, everything_once, visits), cudaErrorInvalidConfiguration));
  }
  auto shared = shape(1, 1, stream);
  shared.dynamicSmemBytes = 16;
  CHECK(refused_at(cudaLaunchKernelEx(&shared, everything_once, visits), cudaErrorNotSupported));
  const auto one = shape(1, 1, nullptr);
  CHECK_CUDA(cudaLaunchKernelEx(&one, count_bits, values));
  CHECK(content(values, 6) == (std::vector<int>{4, 31, 32, 63, 4, 0}));
  for (void* memory : {static_cast<void*>(values), static_cast<void*>(sum), static_cast<void*>(visits)})
    CHECK_CUDA(cudaFree(memory));
  CHECK_CUDA(cudaStreamDestroy(stream));
}

// ---- Streams and events ----

/// Holds a stream until it is opened, and a little longer.
struct Gate {
  std::latch opened{1};
  static void pass(void* gate) {
    static_cast<Gate*>(gate)->opened.wait();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  void hold(cudaStream_t stream) { CHECK_CUDA(cudaLaunchHostFunc(stream, pass, this)); }
  void open() { opened.count_down(); }
};

void test_order_between_streams() {
  cudaStream_t first = nullptr, second = nullptr;
  cudaEvent_t begin = nullptr, written = nullptr;
  CHECK_CUDA(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
  CHECK_CUDA(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
  CHECK_CUDA(cudaEventCreate(&begin));
  CHECK_CUDA(cudaEventCreate(&written));
  int *host = nullptr, *result = nullptr;
  CHECK_CUDA(cudaMallocHost(&host, 4096 * sizeof(int)));
  CHECK_CUDA(cudaHostAlloc(&result, 4096 * sizeof(int), cudaHostAllocMapped));
  int* const values = device_array<int>(4096);
  auto* const sum = device_array<unsigned long long>(1);
  CHECK_CUDA(cudaEventQuery(written));  // never recorded: nothing to wait for
  for (int round = 0; round < 3; ++round) {
    std::fill_n(host, 4096, round);
    CHECK_CUDA(cudaEventRecord(begin, first));
    Gate gate;
    gate.hold(first);
    CHECK_CUDA(cudaMemcpyAsync(values, host, 4096 * sizeof(int), cudaMemcpyHostToDevice, first));
    CHECK_CUDA(cudaEventRecord(written, first));
    CHECK(refused_at(cudaStreamQuery(first), cudaErrorNotReady));
    CHECK(refused_at(cudaEventQuery(written), cudaErrorNotReady));
    CHECK_CUDA(cudaStreamWaitEvent(second, written));
    const auto config = shape(4, 1024, second);
    CHECK_CUDA(cudaLaunchKernelEx(&config, add_index, values, 4096, sum));
    CHECK_CUDA(cudaMemcpyAsync(result, values, 4096 * sizeof(int), cudaMemcpyDeviceToHost, second));
    gate.open();
    CHECK_CUDA(cudaEventSynchronize(written));
    CHECK_CUDA(cudaStreamSynchronize(second));
    for (int i = 0; i < 4096; ++i) CHECK(result[i] == round + i);
    float milliseconds = 0;
    CHECK_CUDA(cudaEventElapsedTime(&milliseconds, begin, written));
    CHECK(milliseconds >= 5);
  }
  CHECK_CUDA(cudaStreamQuery(first));
  for (void* memory : {static_cast<void*>(values), static_cast<void*>(sum)}) CHECK_CUDA(cudaFree(memory));
  CHECK_CUDA(cudaFreeHost(host));
  CHECK_CUDA(cudaFreeHost(result));
  for (auto event : {begin, written}) CHECK_CUDA(cudaEventDestroy(event));
  for (auto stream : {first, second}) CHECK_CUDA(cudaStreamDestroy(stream));
}

void set_late(void* value) {
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  *static_cast<int*>(value) = 7;
}

void test_null_stream() {
  cudaStream_t blocking = nullptr, apart = nullptr;
  CHECK_CUDA(cudaStreamCreate(&blocking));
  int lowest = 1, highest = 1, priority = 1;
  CHECK_CUDA(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
  CHECK_CUDA(cudaStreamCreateWithPriority(&apart, cudaStreamNonBlocking, -100));
  CHECK_CUDA(cudaStreamGetPriority(apart, &priority));
  CHECK(lowest == 0 && highest < 0 && priority == highest);
  int* const word = device_array<int>(1);
  int late = 0, later = 0;
  CHECK_CUDA(cudaLaunchHostFunc(blocking, set_late, &late));
  CHECK_CUDA(cudaMemset(word, 0, sizeof(int)));  // waits for the blocking stream
  CHECK(late == 7);

  Gate gate;
  gate.hold(apart);
  CHECK_CUDA(cudaLaunchHostFunc(apart, set_late, &later));
  CHECK_CUDA(cudaMemset(word, 0, sizeof(int)));
  CHECK_CUDA(cudaStreamQuery(nullptr));
  CHECK(refused_at(cudaStreamQuery(apart), cudaErrorNotReady));
  CHECK_CUDA(cudaStreamDestroy(apart));  // what was put on it is done all the same
  CHECK(refused_at(cudaStreamSynchronize(apart), cudaErrorInvalidResourceHandle));
  gate.open();
  CHECK_CUDA(cudaDeviceSynchronize());
  CHECK(later == 7);
  CHECK_CUDA(cudaStreamDestroy(blocking));
  CHECK_CUDA(cudaFree(word));
}

void test_stream_errors() {
  cudaStream_t stream = nullptr;
  CHECK(refused_at(cudaStreamCreateWithFlags(&stream, 8), cudaErrorInvalidValue));
  CHECK_CUDA(cudaStreamCreate(&stream));
  cudaEvent_t timeless = nullptr;
  CHECK(refused_at(cudaEventCreateWithFlags(&timeless, cudaEventInterprocess), cudaErrorInvalidValue));
  CHECK_CUDA(
      cudaEventCreateWithFlags(&timeless, cudaEventInterprocess | cudaEventDisableTiming | cudaEventBlockingSync));
  CHECK_CUDA(cudaEventRecord(timeless, stream));
  CHECK_CUDA(cudaEventSynchronize(timeless));
  float milliseconds = 0;
  CHECK(refused_at(cudaEventElapsedTime(&milliseconds, timeless, timeless), cudaErrorInvalidResourceHandle));
  CHECK_CUDA(cudaEventDestroy(timeless));
  CHECK(refused_at(cudaEventDestroy(timeless), cudaErrorInvalidResourceHandle));
  cudaError_t inside = cudaSuccess;
  CHECK_CUDA(cudaLaunchHostFunc(
      stream, [](void* error) { *static_cast<cudaError_t*>(error) = cudaDeviceSynchronize(); }, &inside));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  CHECK(inside == cudaErrorNotPermitted);
  CHECK_CUDA(cudaStreamDestroy(stream));
}

// ---- Memory ----

void test_memory() {
  size_t free = 0, total = 0;
  CHECK_CUDA(cudaMemGetInfo(&free, &total));
  CHECK(free == total && total == size_t{1} << 30);
  simulator_set_memory(1 << 20);
  void *first = nullptr, *second = nullptr;
  CHECK_CUDA(cudaMalloc(&first, 1'000'000));
  CHECK(reinterpret_cast<uintptr_t>(first) % 256 == 0);
  CHECK(refused_at(cudaMalloc(&second, 48'577), cudaErrorMemoryAllocation));
  CHECK(second == nullptr && simulator_live("allocations") == 1 && simulator_live("bytes") == 1'000'000);
  CHECK_CUDA(cudaMalloc(&second, 48'576));
  CHECK_CUDA(cudaMemGetInfo(&free, &total));
  CHECK(free == 0 && total == 1 << 20);
  CHECK(refused_at(cudaFree(static_cast<std::byte*>(first) + 256), cudaErrorInvalidValue));
  CHECK_CUDA(cudaFree(first));
  CHECK(refused_at(cudaFree(first), cudaErrorInvalidValue));
  CHECK_CUDA(cudaFree(second));
  CHECK_CUDA(cudaFree(nullptr));
  CHECK_CUDA(cudaMemGetInfo(&free, &total));
  CHECK(free == 1 << 20);
  simulator_set_memory(size_t{1} << 30);
}

void test_copies() {
  auto* const device = device_array<char>(1000);
  std::vector<char> host(1000, 'a'), back(1000, 'b');
  CHECK_CUDA(cudaMemcpy(device, host.data(), 1000, cudaMemcpyHostToDevice));
  CHECK_CUDA(cudaMemcpy(device + 500, device, 500, cudaMemcpyDeviceToDevice));
  CHECK_CUDA(cudaMemcpy(back.data(), device, 1000, cudaMemcpyDefault));
  CHECK(back == host);
  const auto refused = [](void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    return refused_at(cudaMemcpy(to, from, bytes, kind), cudaErrorInvalidValue);
  };
  CHECK(refused(device + 1, host.data(), 1000, cudaMemcpyHostToDevice));
  CHECK(refused(back.data(), device - 1, 10, cudaMemcpyDefault));
  CHECK(refused(back.data(), host.data(), 10, cudaMemcpyDeviceToHost));
  CHECK(refused(device, device, 10, cudaMemcpyHostToDevice));
  CHECK(refused_at(cudaMemset(host.data(), 0, 10), cudaErrorInvalidValue));
  CHECK(refused_at(cudaMemset(device, 0, 1001), cudaErrorInvalidValue));

  // Memory that is not registered has been read and written when the function returns.
  cudaStream_t stream = nullptr;
  CHECK_CUDA(cudaStreamCreate(&stream));
  Gate gate;
  gate.hold(stream);
  CHECK_CUDA(cudaMemcpyAsync(device, host.data(), 1000, cudaMemcpyDefault, stream));
  CHECK(refused_at(cudaStreamQuery(stream), cudaErrorNotReady));
  std::fill(host.begin(), host.end(), 'c');
  gate.open();
  CHECK_CUDA(cudaMemcpyAsync(back.data(), device, 1000, cudaMemcpyDefault, stream));
  CHECK(back == std::vector<char>(1000, 'a'));
  CHECK_CUDA(cudaMemcpy2DAsync(device, 100, host.data(), 10, 10, 10, cudaMemcpyHostToDevice, stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  back = content(device, 1000);
  CHECK(std::count(back.begin(), back.end(), 'c') == 100 && back[900] == 'c' && back[910] == 'a');
  CHECK(refused_at(cudaMemcpy2DAsync(device, 5, host.data(), 10, 10, 10, cudaMemcpyDefault, stream),
                   cudaErrorInvalidPitchValue));
  CHECK_CUDA(cudaStreamDestroy(stream));
  CHECK_CUDA(cudaFree(device));
}

void test_registered() {
  constexpr size_t kBytes = 1 << 16;
  std::vector<std::byte> host(2 * kBytes);
  CHECK(refused_at(cudaHostRegister(host.data(), 0, 0), cudaErrorInvalidValue));
  CHECK(refused_at(cudaHostUnregister(host.data()), cudaErrorHostMemoryNotRegistered));
  CHECK_CUDA(cudaHostRegister(host.data(), kBytes, cudaHostRegisterMapped | cudaHostRegisterPortable));
  CHECK(refused_at(cudaHostRegister(host.data() + kBytes - 1, 2, 0), cudaErrorHostMemoryAlreadyRegistered));
  simulator_set_registrable(kBytes + 9);
  CHECK(refused_at(cudaHostRegister(host.data() + kBytes, 10, 0), cudaErrorMemoryAllocation));
  CHECK_CUDA(cudaHostRegister(host.data() + kBytes, 9, 0));
  CHECK(simulator_live("registered") == 2);
  simulator_set_registrable(SIZE_MAX);

  void* address = nullptr;
  CHECK_CUDA(cudaHostGetDevicePointer(&address, host.data() + 5, 0));
  CHECK(address == host.data() + 5);
  CHECK(refused_at(cudaHostGetDevicePointer(&address, &address, 0), cudaErrorInvalidValue));
  auto* const device = device_array<char>(10);
  cudaPointerAttributes about{};
  CHECK_CUDA(cudaPointerGetAttributes(&about, host.data() + 5));
  CHECK(about.type == cudaMemoryTypeHost && about.devicePointer == host.data() + 5);
  CHECK_CUDA(cudaPointerGetAttributes(&about, device + 9));
  CHECK(about.type == cudaMemoryTypeDevice && about.device == 0 && about.hostPointer == nullptr);
  CHECK_CUDA(cudaPointerGetAttributes(&about, &about));
  CHECK(about.type == cudaMemoryTypeUnregistered && about.devicePointer == nullptr);
  CHECK_CUDA(cudaHostUnregister(host.data()));
  CHECK_CUDA(cudaHostUnregister(host.data() + kBytes));
  CHECK_CUDA(cudaFree(device));

  // Memory that cannot be written is only registered for reading.
  void* const fixed = mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(refused_at(cudaHostRegister(fixed, kBytes, 0), cudaErrorInvalidValue));
  CHECK_CUDA(cudaHostRegister(fixed, kBytes, cudaHostRegisterReadOnly));
  CHECK_CUDA(cudaHostUnregister(fixed));
  munmap(fixed, kBytes);
  CHECK(refused_at(cudaHostRegister(fixed, kBytes, 0), cudaErrorInvalidValue));
}

// ---- Devices ----

void test_device() {
  int count = 0, value = 0;
  CHECK_CUDA(cudaGetDeviceCount(&count));
  CHECK(count == 1);
  CHECK(refused_at(cudaSetDevice(1), cudaErrorInvalidDevice));
  CHECK_CUDA(cudaDriverGetVersion(&value));
  CHECK(value == 13000);
  CHECK_CUDA(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0));
  CHECK(value == 8);
  CHECK(refused_at(cudaDeviceGetAttribute(&value, static_cast<cudaDeviceAttr>(1), 0), cudaErrorInvalidValue));
  cudaDeviceProp properties{};
  CHECK_CUDA(cudaGetDeviceProperties(&properties, 0));
  CHECK(std::string(properties.name) == "simulated device" && properties.major == 9);
  char bus[13];
  CHECK_CUDA(cudaDeviceGetPCIBusId(bus, sizeof bus, 0));
  CHECK(std::string(bus) == "0000:10:00.0");
  CHECK(refused_at(cudaDeviceGetPCIBusId(bus, 5, 0), cudaErrorInvalidValue));
  CHECK(std::string(cudaGetErrorName(cudaErrorMemoryAllocation)) == "cudaErrorMemoryAllocation");
  CHECK(std::string(cudaGetErrorString(cudaErrorMemoryAllocation)) == "out of memory");
  CHECK(std::string(cudaGetErrorName(static_cast<cudaError_t>(4242))) == "unrecognized error code");
  CHECK(simulator_live("nonsense") == SIZE_MAX);
}

}  // namespace

int main() {
  test_device();
  test_memory();
  test_launch();
  test_order_between_streams();
  test_null_stream();
  test_stream_errors();
  test_copies();
  test_registered();
  for (const char* what : {"allocations", "bytes", "host", "registered", "ipc", "streams", "events"})
    CHECK(simulator_live(what) == 0);
  std::cout << "test_simulator: ok\n";
  return 0;
}
