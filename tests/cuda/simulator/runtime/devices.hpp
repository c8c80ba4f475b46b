// The devices of this process: how many there are and who may read whose memory.
#pragma once

#include <cuda_runtime_api.h>
#include <sys/types.h>

#include <mutex>
#include <set>
#include <utility>

namespace simulator {

class Devices {
 public:
  static Devices& get();  ///< never destroyed: threads of streams may outlive main

  /// Why no function works, if none does.
  cudaError_t state() const;
  bool old_driver() const { return old_driver_; }
  int count() const { return count_; }
  bool has(int device) const { return device >= 0 && device < count_; }
  bool can_access(int device, int peer) const { return peers_ && device != peer; }
  /// Whether this process can share its memory with others.
  bool ipc() const { return ipc_; }
  cudaError_t enable_access(int device, int peer);
  cudaError_t disable_access(int device, int peer);
  /// Makes a context on a device, unless there is one.
  void use(int device);
  /// Devices that this process has a context on.
  size_t used() const;

 private:
  Devices();

  const pid_t process_;
  bool old_driver_ = false, peers_ = true, ipc_ = true;
  int count_ = 1;
  mutable std::mutex mutex_;
  std::set<std::pair<int, int>> access_;
  std::set<int> used_;
};

inline constinit thread_local int current_device = 0;

}  // namespace simulator
