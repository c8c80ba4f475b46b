// Memory as libnvm maps it for a drive, and what libnvm says when it cannot.
#pragma once

#include <nvm_dma.h>
#include <nvm_types.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tiering/bam/drive.hpp>
#include <tiering/errors.hpp>
#include <utility>
#include <vector>

namespace tiering::bam {

struct Unmap {
  void operator()(nvm_dma_t* map) const { nvm_dma_unmap(map); }
};
using Mapped = std::unique_ptr<nvm_dma_t, Unmap>;

/// libnvm gives the status of a command as a negative number, else errno. Its words for them are not asked for, because
/// it prints to the terminal then.
inline void check(int code, const std::string& name, const std::string& what) {
  if (code == 0) return;
  const int error = code == ETIME ? ETIMEDOUT : code;
  if (code > 0) throw IoError(error, name + ": " + what + ": " + std::strerror(error));
  char status[16];
  std::snprintf(status, sizeof status, "0x%x", static_cast<unsigned>(-code));
  throw IoError(EIO, name + ": " + what + ": NVMe status " + status);
}

class NvmMemory final : public DriveMemory {
 public:
  NvmMemory(Mapped map, const nvm_ctrl_t* controller) : map_(std::move(map)), controller_(controller) {}
  std::span<const std::byte> bytes() const noexcept override {
    return {static_cast<const std::byte*>(map_->vaddr), map_->n_ioaddrs * map_->page_size};
  }
  std::span<const uint64_t> pages() const noexcept override { return {map_->ioaddrs, map_->n_ioaddrs}; }
  const nvm_dma_t* map() const noexcept { return map_.get(); }
  const nvm_ctrl_t* controller() const noexcept { return controller_; }

 private:
  Mapped map_;
  const nvm_ctrl_t* controller_;  ///< whose addresses these are
};

/// What a mapping gave. The module pins as many pages as it can and says nothing of the rest, which have no address
/// then.
inline Mapped whole(nvm_dma_t* made, const std::string& name) {
  Mapped map(made);
  const std::span<const uint64_t> pages{map->ioaddrs, map->n_ioaddrs};
  if (std::find(pages.begin(), pages.end(), uint64_t{0}) != pages.end())
    throw IoError(ENOMEM, name + ": BaM's module could not pin all of " + std::to_string(map->n_ioaddrs) + " pages");
  return map;
}

/// Bits of addresses that an emulated drive has the other way; none: a real drive.
using Flipped = std::optional<uint64_t>;

inline Mapped map_memory(const nvm_ctrl_t* controller, const std::string& name, Flipped emulated,
                         std::span<std::byte> memory) {
  nvm_dma_t* made = nullptr;
  if (emulated) {
    std::vector<uint64_t> pages;
    for (size_t p = 0; p * nvme::kPageBytes < memory.size(); ++p)
      pages.push_back((reinterpret_cast<uint64_t>(memory.data()) + p * nvme::kPageBytes) ^ *emulated);
    check(nvm_dma_map(&made, controller, memory.data(), nvme::kPageBytes, pages.size(), pages.data()), name,
          "cannot share memory");
  } else {
    check(nvm_dma_map_host(&made, controller, memory.data(), memory.size()), name, "cannot share memory of the host");
  }
  return whole(made, name);
}

}  // namespace tiering::bam
