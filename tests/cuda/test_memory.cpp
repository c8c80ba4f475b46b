// Memory for a device: locked, given back, refused when there is too little. Without a device it is skipped (exit 77).
#include <tiering/cuda/memory.hpp>
#include <vector>

#include "../cpp/check.hpp"
#include "device.hpp"

using namespace tiering;
using namespace tiering::test;

namespace {

/// Too much is refused with numbers, and leaves everything as it was.
void test_too_much() {
  size_t before = 0, after = 0, total = 0;
  cuda::check(cudaMemGetInfo(&before, &total), "free memory");
  const auto wanted = static_cast<int64_t>(total) * 2;
  bool refused = false;
  try {
    const cuda::DeviceMemory memory(wanted);
  } catch (const cuda::OutOfMemory& error) {
    refused = error.wanted() == wanted && error.free() > 0;
  }
  CHECK(refused);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  cuda::check(cudaMemGetInfo(&after, &total), "free memory");
  CHECK(before == after);
}

void test_registration() {
  std::vector<std::byte> memory(1 << 16);
  {
    const cuda::Registration lock(memory.data(), static_cast<int64_t>(memory.size()));
    CHECK(lock.device_address() != nullptr);
    bool refused = false;
    try {
      const cuda::Registration again(memory.data(), static_cast<int64_t>(memory.size()));
    } catch (const cuda::CudaError&) {
      refused = true;
    }
    CHECK(refused);
  }
  const cuda::Registration later(memory.data(), static_cast<int64_t>(memory.size()));
}

/// A scope makes another device current, and leaves what was current before as it was, also in a thread that has used
/// none. With one device it has nothing to do.
void test_scope() {
  int devices = 0, device = -1;
  cuda::check(cudaGetDeviceCount(&devices), "counting devices");
  {
    const cuda::DeviceScope outer(devices - 1);
    const cuda::DeviceScope inner(0);
    cuda::check(cudaGetDevice(&device), "finding the device");
    CHECK(device == 0);
  }
  cuda::check(cudaGetDevice(&device), "finding the device");
  CHECK(device == 0);
  bool refused = false;
  try {
    const cuda::DeviceScope none(devices);
  } catch (const cuda::CudaError&) {
    refused = true;
  }
  CHECK(refused);
  const cuda::DeviceScope quiet(devices, std::nothrow);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
}

}  // namespace

int main() {
  if (no_device("test_memory")) return kSkipped;
  test_too_much();
  test_registration();
  test_scope();
  std::cout << "test_memory: ok\n";
  return 0;
}
