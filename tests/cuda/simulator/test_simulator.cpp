// What the simulated device shows: streams that run apart from the host and in the order of events, accesses outside an
// allocation, races between blocks. A part that ends its process runs this program again with the part's name.
#include <cuda_runtime.h>
#include <sys/wait.h>

#include <chrono>
#include <filesystem>
#include <thread>
#include <tiering/cuda/launch.hpp>
#include <tiering/cuda/memory.hpp>

#include "../../cpp/check.hpp"

using namespace tiering::cuda;

namespace {

__global__ void wait_for(const std::atomic<bool>* open) {
  while (!*open) std::this_thread::yield();
}
__global__ void write_block(int* word) { *word = static_cast<int>(blockIdx.x); }
__global__ void write_at(std::byte* memory, int64_t index) { memory[index] = std::byte{1}; }

/// Work behind a gate waits, on its stream and on one that waits for its event; the host goes on meanwhile.
void test_order() {
  constexpr int64_t kBytes = 1000;
  const DeviceMemory memory(kBytes), out(kBytes);
  std::vector<std::byte> values(kBytes), found(kBytes);
  check(cudaMemcpy(found.data(), memory.data(), kBytes, cudaMemcpyDefault), "reading memory");
  CHECK(found == std::vector(kBytes, std::byte{0xcd}));
  const GpuStream first, second;
  const GpuEvent copied;
  std::atomic<bool> open = false;
  launch("waiting", wait_for, 1, 1, first.get(), static_cast<const std::atomic<bool>*>(&open));
  copy_async(memory.data(), values.data(), kBytes, first.get(), "copying pageable memory");
  values.assign(kBytes, std::byte{7});  // it has been read
  copied.record(first.get());
  wait_event(second.get(), copied);
  copy_async(out.data(), memory.data(), kBytes, second.get(), "copying on");
  std::this_thread::sleep_for(std::chrono::milliseconds(30));  // in which work that waits for nothing is done
  check(cudaMemcpy(found.data(), out.data(), kBytes, cudaMemcpyDefault), "reading memory");
  CHECK(found == std::vector(kBytes, std::byte{0xcd}));
  open = true;
  second.synchronize();
  check(cudaMemcpy(found.data(), out.data(), kBytes, cudaMemcpyDefault), "reading memory");
  CHECK(found == std::vector(kBytes, std::byte{0}));
}

void overrun(int64_t bytes) {
  const DeviceMemory memory(bytes);
  launch("writing", write_at, 1, 1, nullptr, memory.data(), bytes);
}

void race() {
  const DeviceMemory word(sizeof(int));
  launch("writing", write_block, 2, 1, nullptr, word.as<int>());
}

/// Returns whether a part ends its process, having printed `words`.
bool ends(const std::string& part, const std::string& words) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  FILE* const pipe = popen(("exec '" + program + "' " + part + " 2>&1").c_str(), "r");
  CHECK(pipe != nullptr);
  std::string output;
  char buffer[4096];
  for (size_t got; (got = fread(buffer, 1, sizeof buffer, pipe)) > 0;) output.append(buffer, got);
  return pclose(pipe) != 0 && output.find(words) != std::string::npos;
}

}  // namespace

int main(int count, char** arguments) {
  const std::string part = count > 1 ? arguments[1] : "";
  if (part == "overrun-page") overrun(4096);
  if (part == "overrun") overrun(1001);
  if (part == "race") race();
  if (count > 1) return 0;
  test_order();
  CHECK(ends("overrun-page", ""));
#if defined(__SANITIZE_ADDRESS__)
  CHECK(ends("overrun", "use-after-poison"));
#endif
#if defined(__SANITIZE_THREAD__)
  CHECK(ends("race", "data race"));
#endif
  std::cout << "test_simulator: ok\n";
  return 0;
}
