#include <cuda_runtime_api.h>

#include <map>
#include <mutex>
#include <tiering/cuda/check.hpp>
#include <tiering/cuda/gpu_bells.hpp>
#include <tiering/cuda/memory.hpp>
#include <utility>

namespace tiering::cuda {
namespace {

/// Registers that GPUs have, and how many use them.
struct Given {
  Registration registers;
  int users = 0;
};

struct AllGiven {
  std::mutex mutex;
  std::map<std::pair<int, const std::byte*>, Given> all;  ///< by GPU and registers
};

/// Never destroyed: CUDA may have ended before it.
AllGiven& given() {
  static auto& all = *new AllGiven;
  return all;
}

}  // namespace

GpuBells::GpuBells(std::span<std::byte> registers) : host_(registers.data()) {
  check(cudaGetDevice(&device_), "finding the device");
  const std::lock_guard lock(given().mutex);
  auto found = given().all.find({device_, host_});
  if (found == given().all.end()) {
    Registration made(host_, static_cast<int64_t>(registers.size()), true);
    found = given().all.emplace(std::pair(device_, host_), Given{std::move(made), 0}).first;
  }
  ++found->second.users;
  there_ = found->second.registers.device_address();
}

GpuBells::~GpuBells() {
  const std::lock_guard lock(given().mutex);
  const auto found = given().all.find({device_, host_});
  if (--found->second.users == 0) given().all.erase(found);
}

nvme::QueuePair GpuBells::of(nvme::QueuePair pair) const {
  pair.submit_bell = seen(pair.submit_bell);
  pair.complete_bell = seen(pair.complete_bell);
  return pair;
}

uint32_t* GpuBells::seen(const uint32_t* bell) const {
  return reinterpret_cast<uint32_t*>(there_ + (reinterpret_cast<const std::byte*>(bell) - host_));
}

}  // namespace tiering::cuda
