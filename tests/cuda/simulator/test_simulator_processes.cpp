// The simulated CUDA runtime in several processes: settings, memory that is shared, and faults that end a program.
// Parts that need a process of their own run this program again with the name of the part.
#include <cuda_runtime.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <map>
#include <numeric>
#include <simulator.hpp>
#include <string>
#include <thread>
#include <vector>

#include "test_support.hpp"

namespace {

struct Outcome {
  int status;
  std::string output;
};

/// Runs a part of this program in a process of its own.
Outcome run_part(const std::string& part, const std::string& settings = "") {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  FILE* const pipe = popen(("exec env " + settings + " '" + program + "' " + part + " 2>&1").c_str(), "r");
  CHECK(pipe != nullptr);
  Outcome outcome{};
  char buffer[4096];
  for (size_t got; (got = fread(buffer, 1, sizeof buffer, pipe)) > 0;) outcome.output.append(buffer, got);
  outcome.status = pclose(pipe);
  return outcome;
}

void check_part(const std::string& part, const std::string& settings = "") {
  const Outcome outcome = run_part(part, settings);
  if (outcome.status != 0) std::cerr << outcome.output;
  CHECK(outcome.status == 0);
}

__global__ void write_same(int* word) { *word = static_cast<int>(blockIdx.x); }

__global__ void write_behind(std::byte* memory, size_t bytes) { memory[bytes] = std::byte{1}; }

// ---- Settings ----

void part_two_devices() {
  int can = 0;
  CHECK_CUDA(cudaDeviceCanAccessPeer(&can, 0, 1));
  CHECK(can == 1);
  CHECK_CUDA(cudaDeviceEnablePeerAccess(1, 0));
  CHECK(refused_at(cudaDeviceEnablePeerAccess(1, 0), cudaErrorPeerAccessAlreadyEnabled));
  CHECK(refused_at(cudaDeviceEnablePeerAccess(0, 0), cudaErrorInvalidDevice));
  cudaStream_t stream = nullptr;
  CHECK_CUDA(cudaStreamCreate(&stream));
  int* const here = device_array<int>(1);
  CHECK_CUDA(cudaSetDevice(1));
  size_t free = 0, total = 0;
  CHECK_CUDA(cudaMemGetInfo(&free, &total));
  CHECK(free == 5000 && total == 5000);
  const auto config = shape(1, 1, stream);
  CHECK(refused_at(cudaLaunchKernelEx(&config, write_same, here), cudaErrorInvalidResourceHandle));
  std::thread([] {
    int device = -1;
    CHECK_CUDA(cudaGetDevice(&device));
    CHECK(device == 0);
  }).join();
  CHECK_CUDA(cudaFree(here));
  CHECK_CUDA(cudaStreamDestroy(stream));
}

void part_no_peers() {
  int can = 1;
  CHECK_CUDA(cudaDeviceCanAccessPeer(&can, 0, 1));
  CHECK(can == 0);
  CHECK(refused_at(cudaDeviceEnablePeerAccess(1, 0), cudaErrorPeerAccessUnsupported));
}

void check_unusable(cudaError_t code) {
  int count = 7;
  void* memory = nullptr;
  cudaStream_t stream = nullptr;
  CHECK(refused_at(cudaGetDeviceCount(&count), code) && count == 0);
  CHECK(refused_at(cudaMalloc(&memory, 1), code));
  CHECK(refused_at(cudaStreamCreate(&stream), code));
  CHECK(refused_at(cudaDeviceSynchronize(), code));
}

void part_old_driver() {
  check_unusable(cudaErrorInsufficientDriver);
  int version = 0;
  CHECK_CUDA(cudaDriverGetVersion(&version));
  CHECK(version == 11040);
}

void part_no_device() { check_unusable(cudaErrorNoDevice); }

// ---- Other processes ----

std::string text(const cudaIpcMemHandle_t& handle) {
  std::string digits;
  for (const char byte : handle.reserved) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", static_cast<unsigned char>(byte));
    digits += two;
  }
  return digits;
}

cudaIpcMemHandle_t handle_of(const std::string& digits) {
  CHECK(digits.size() == 2 * CUDA_IPC_HANDLE_SIZE);
  cudaIpcMemHandle_t handle{};
  for (size_t i = 0; i < CUDA_IPC_HANDLE_SIZE; ++i)
    handle.reserved[i] = static_cast<char>(std::stoi(digits.substr(2 * i, 2), nullptr, 16));
  return handle;
}

void part_open(const std::string& digits) {
  const cudaIpcMemHandle_t handle = handle_of(digits);
  void *memory = nullptr, *again = nullptr;
  CHECK(refused_at(cudaIpcOpenMemHandle(&memory, handle, 0), cudaErrorInvalidValue));
  CHECK_CUDA(cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess));
  CHECK_CUDA(cudaIpcOpenMemHandle(&again, handle, cudaIpcMemLazyEnablePeerAccess));
  CHECK(again == memory && simulator_live("ipc") == 2);
  cudaPointerAttributes about{};
  CHECK_CUDA(cudaPointerGetAttributes(&about, memory));
  CHECK(about.type == cudaMemoryTypeDevice);
  const auto values = content(static_cast<const int*>(memory), 100);
  for (int i = 0; i < 100; ++i) CHECK(values[i] == i);
  CHECK(refused_at(cudaMemset(memory, 0, 401), cudaErrorInvalidValue));
  CHECK(refused_at(cudaFree(memory), cudaErrorInvalidValue));
  CHECK_CUDA(cudaMemset(memory, 0, 200));
  CHECK_CUDA(cudaIpcCloseMemHandle(memory));
  CHECK_CUDA(cudaMemset(memory, 0, 4));  // opened once more
  CHECK_CUDA(cudaIpcCloseMemHandle(memory));
  CHECK(refused_at(cudaIpcCloseMemHandle(memory), cudaErrorInvalidValue));
  CHECK(simulator_live("ipc") == 0);
}

void part_offer() {
  cudaIpcMemHandle_t handle{};
  CHECK_CUDA(cudaIpcGetMemHandle(&handle, device_array<int>(1)));
  std::cout << text(handle) << std::flush;
}

void test_other_processes() {
  void* const before = device_array<int>(1000);
  int* const shared = device_array<int>(100);
  std::vector<int> values(100);
  std::iota(values.begin(), values.end(), 0);
  CHECK_CUDA(cudaMemcpy(shared, values.data(), 400, cudaMemcpyDefault));
  cudaIpcMemHandle_t handle{};
  CHECK(refused_at(cudaIpcGetMemHandle(&handle, shared + 1), cudaErrorInvalidValue));
  CHECK_CUDA(cudaIpcGetMemHandle(&handle, shared));
  void* memory = nullptr;
  CHECK(
      refused_at(cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess), cudaErrorDeviceUninitialized));
  check_part("open " + text(handle));
  std::fill_n(values.begin(), 50, 0);
  CHECK(content(shared, 100) == values);
  CHECK_CUDA(cudaFree(shared));
  CHECK_CUDA(cudaFree(before));

  const Outcome offered = run_part("offer");  // by a process that has ended
  CHECK(offered.status == 0);
  CHECK(refused_at(cudaIpcOpenMemHandle(&memory, handle_of(offered.output), cudaIpcMemLazyEnablePeerAccess),
                   cudaErrorInvalidResourceHandle));

  const pid_t child = fork();  // of a process that uses a device: useless, as on a GPU
  if (child == 0) _exit(cudaMalloc(&memory, 1) == cudaErrorInitializationError ? 0 : 1);
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
}

// ---- What the sanitizers and the system find ----

void part_overrun(size_t bytes) {
  std::byte* const memory = device_array<std::byte>(bytes);
  const auto config = shape(1, 1, nullptr);
  CHECK_CUDA(cudaLaunchKernelEx(&config, write_behind, memory, bytes));
}

void part_race() {
  int* const word = device_array<int>(1);
  const auto config = shape(2, 1, nullptr);
  CHECK_CUDA(cudaLaunchKernelEx(&config, write_same, word));
}

void test_found_faults() {
  CHECK(run_part("overrun-page").status != 0);
#if defined(__SANITIZE_ADDRESS__)
  const Outcome overrun = run_part("overrun");
  CHECK(overrun.status != 0 && overrun.output.find("use-after-poison") != std::string::npos);
#endif
#if defined(__SANITIZE_THREAD__)
  const Outcome race = run_part("race");
  CHECK(race.status != 0 && race.output.find("data race") != std::string::npos);
#endif
}

int run_named(const std::string& part, const std::string& argument) {
  const std::map<std::string, void (*)()> parts{
      {"two-devices", part_two_devices}, {"no-peers", part_no_peers}, {"old-driver", part_old_driver},
      {"no-device", part_no_device},     {"offer", part_offer},       {"race", part_race}};
  if (const auto found = parts.find(part); found != parts.end())
    found->second();
  else if (part == "open")
    part_open(argument);
  else if (part == "overrun")
    part_overrun(1001);
  else if (part == "overrun-page")
    part_overrun(4096);
  else
    return 2;
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count > 1) return run_named(arguments[1], count > 2 ? arguments[2] : "");
  check_part("two-devices", "TIERING_SIMULATED_DEVICES=2 TIERING_SIMULATED_MEMORY=5000");
  check_part("no-peers", "TIERING_SIMULATED_DEVICES=2 TIERING_SIMULATED_PEERS=off");
  check_part("old-driver", "TIERING_SIMULATED_DRIVER=old");
  check_part("no-device", "TIERING_SIMULATED_DEVICES=0");
  test_other_processes();
  test_found_faults();
  for (const char* what : {"allocations", "bytes", "ipc"}) CHECK(simulator_live(what) == 0);
  std::cout << "test_simulator_processes: ok\n";
  return 0;
}
