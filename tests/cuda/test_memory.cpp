// Memory for a device: filled from files, locked, given back, refused when there is too little. Without a device it is
// skipped (exit 77).
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <tiering/cuda/device.hpp>
#include <tiering/cuda/memory.hpp>
#include <tiering/io/read_engine.hpp>

#include "../cpp/check.hpp"
#include "device.hpp"

using namespace tiering;
using namespace tiering::test;

namespace {

std::vector<std::byte> random_bytes(size_t count) {
  std::mt19937_64 random(count);
  std::vector<std::byte> bytes(count);
  for (auto& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

/// Any part of a file arrives whole, whatever the chunk, with a chunk that does not divide it.
void test_fill() {
  const auto path = std::filesystem::temp_directory_path() / ("tiering-fill-" + std::to_string(::getpid()));
  const auto content = random_bytes(300'001);
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(content.data()), 300'001);
  std::vector<std::string> engines{"threads"};
  if (uring_unavailable().empty()) engines.emplace_back("io_uring");
  for (const auto& engine : engines)
    for (const auto& [offset, bytes] :
         std::vector<std::pair<int64_t, int64_t>>{{0, 300'001}, {0, 4096}, {4097, 250'000}, {299'999, 2}, {17, 0}})
      for (const int64_t chunk : {4096, 50'000, 1 << 20}) {
        const cuda::DeviceMemory memory(bytes + 1);
        cuda::fill_device(memory.data(), path, offset, bytes, engine, chunk);
        std::vector<std::byte> found(static_cast<size_t>(bytes));
        cuda::check(cudaMemcpy(found.data(), memory.data(), found.size(), cudaMemcpyDefault), "reading memory");
        CHECK(std::equal(found.begin(), found.end(), content.begin() + offset));
      }
  const cuda::DeviceMemory memory(1000);
  bool refused = false;
  try {
    cuda::fill_device(memory.data(), path, 300'000, 1000, "threads", 4096);
  } catch (const IoError&) {
    refused = true;
  }
  CHECK(refused);
  std::filesystem::remove(path);
}

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
  test_fill();
  test_too_much();
  test_registration();
  test_scope();
  std::cout << "test_memory: ok\n";
  return 0;
}
