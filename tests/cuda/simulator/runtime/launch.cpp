// Kernels: blocks are run by several threads, so that the thread sanitizer sees races between them.
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "address_map.hpp"
#include "call.hpp"
#include "streams.hpp"

namespace simulator {
namespace {

constexpr uint64_t kThreadsOfBlock = 1024;

bool possible(dim3 grid, dim3 block) {
  if (grid.x < 1 || grid.y < 1 || grid.z < 1 || block.x < 1 || block.y < 1 || block.z < 1) return false;
  if (grid.x > 0x7fffffff || grid.y > 65535 || grid.z > 65535) return false;
  if (block.x > 1024 || block.y > 1024 || block.z > 64) return false;
  return uint64_t{block.x} * block.y * block.z <= kThreadsOfBlock;
}

void run_block(uint64_t block, const std::function<void()>& thread) {
  blockIdx = {static_cast<unsigned>(block % gridDim.x), static_cast<unsigned>(block / gridDim.x % gridDim.y),
              static_cast<unsigned>(block / gridDim.x / gridDim.y)};
  for (unsigned z = 0; z < blockDim.z; ++z)
    for (unsigned y = 0; y < blockDim.y; ++y)
      for (unsigned x = 0; x < blockDim.x; ++x) {
        threadIdx = {x, y, z};
        thread();
      }
}

/// Every worker begins with a block of its own, so that even a grid of two blocks is run by two threads, and goes on
/// with those that are left.
void run_grid(dim3 grid, dim3 block, const std::function<void()>& thread) {
  const uint64_t blocks = uint64_t{grid.x} * grid.y * grid.z;
  const uint64_t most = std::clamp(std::thread::hardware_concurrency(), 2U, 4U);
  const uint64_t workers = std::min(blocks, most);
  std::atomic<uint64_t> next{workers};
  const auto work = [&](uint64_t first) {
    gridDim = grid;
    blockDim = block;
    for (uint64_t at = first; at < blocks; at = next.fetch_add(1, std::memory_order_relaxed)) run_block(at, thread);
  };
  std::vector<std::jthread> others;
  for (uint64_t worker = 1; worker < workers; ++worker)
    others.emplace_back([&work, worker] {
      on_stream = true;
      work(worker);
    });
  work(0);
}

std::atomic<simulator_interpreter> interpreter{nullptr};

cudaError_t interpret(simulator_interpreter run, unsigned blocks, unsigned threads, const Called& called) {
  Dl_info found{};
  if (dladdr(called.kernel, &found) == 0 || found.dli_saddr != called.kernel) return cudaErrorInvalidDeviceFunction;
  const int failed = run(found.dli_sname, blocks, threads, called.arguments.data(), called.bytes.data(),
                         called.arguments.size());
  return failed == 0 ? cudaSuccess : cudaErrorLaunchFailure;
}

}  // namespace

cudaError_t launch(const cudaLaunchConfig_t* config, std::function<void()> thread, const Called& called) {
  return call([&] {
    if (config == nullptr) return cudaErrorInvalidValue;
    const dim3 grid = config->gridDim, block = config->blockDim;
    if (!possible(grid, block)) return cudaErrorInvalidConfiguration;
    if (config->numAttrs != 0 || config->dynamicSmemBytes != 0) return cudaErrorNotSupported;
    const auto stream = Streams::get().find(config->stream);
    if (stream && stream->device != current_device) return cudaErrorInvalidResourceHandle;
    if (const auto run = interpreter.load()) {
      stream ? stream->wait() : Streams::get().run_on_null([] {});
      return interpret(run, grid.x, block.x, called);
    }
    return enqueue(config->stream, [=] { run_grid(grid, block, thread); });
  });
}

}  // namespace simulator

void simulator_interpret(simulator_interpreter run) { simulator::interpreter = run; }

int simulator_find(const void* address, void** begin, size_t* bytes) {
  const auto found = simulator::AddressMap::get().find(address);
  if (!found) return 0;
  *begin = found->base;
  *bytes = found->bytes;
  return 1;
}
