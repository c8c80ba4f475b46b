// An NVMe drive that this process has for itself: brought up through BaM's kernel module by a handful of admin commands.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <tiering/nvme/commands.hpp>
#include <vector>

namespace tiering {

/// What a drive shares with the process: its registers, and memory that it may read and write.
class DriveBus {
 public:
  static constexpr size_t kRegisterBytes = 8192;  ///< that are mapped: registers, doorbells of hundreds of queues
  static constexpr size_t kHostPage = 4096, kDevicePage = 65536;

  virtual ~DriveBus() = default;
  virtual uint32_t* registers() = 0;
  /// The drive's addresses of memory of this process, one for each kHostPage; `of_device`: of a GPU, for each kDevicePage.
  virtual std::vector<uint64_t> map(std::byte* memory, size_t bytes, bool of_device) = 0;
  virtual void unmap(std::byte* memory) noexcept = 0;
};

/// Opens a device of BaM's module, such as /dev/libnvm0. Throws IoError where that fails: also when another process has it.
std::unique_ptr<DriveBus> open_drive_bus(const std::string& path);

/// Throws InputError if an IOMMU translates addresses: the module gives addresses of the first drive only.
/// `groups` is a folder such as /sys/kernel/iommu_groups.
void expect_no_translation(const std::string& groups);

struct DriveFacts {
  uint64_t blocks = 0;
  uint32_t block_bytes = 0, metadata_bytes = 0;
  uint32_t most_depth = 0;  ///< entries of a queue
};

/// Source: NVM Express Base Specification 1.4, sections 3.1, 5.21, 5.4, 5.3, 5.15, 7.6.1.
class Drive {
 public:
  /// Resets the drive and identifies it. Throws IoError if it does not answer, InputError if it is of another kind.
  Drive(std::string name, std::unique_ptr<DriveBus> bus);
  /// Stops the drive.
  ~Drive();
  Drive(const Drive&) = delete;
  Drive& operator=(const Drive&) = delete;

  const std::string& name() const { return name_; }
  const DriveFacts& facts() const { return facts_; }
  DriveBus& bus() { return *bus_; }

  /// Throws InputError unless pages of these sizes, `image_bytes` of them, can be read.
  void expect_image(int64_t page_bytes, int64_t image_bytes) const;
  /// Asks for pairs of queues, once; throws InputError if the drive has fewer.
  void request_pairs(uint32_t pairs);
  /// Makes pair `number`, from 0 on, of queues at drive addresses; each begins with a page of
  /// 4 KiB and lies in one piece.
  void create_pair(uint32_t number, uint32_t depth, uint64_t submission, uint64_t completion);
  uint32_t* submit_bell(uint32_t number) const { return bell(2 * (number + 1)); }
  uint32_t* complete_bell(uint32_t number) const { return bell(2 * (number + 1) + 1); }
  /// Ends all work of the drive; whether it has ended: else the drive may write to its memory still.
  bool stop() noexcept;

 private:
  uint32_t load(size_t at) const {
    return std::atomic_ref(registers_[at / sizeof(uint32_t)]).load(std::memory_order_acquire);
  }
  void store(size_t at, uint32_t value) {
    std::atomic_ref(registers_[at / sizeof(uint32_t)]).store(value, std::memory_order_release);
  }
  void store_address(size_t at, uint64_t address) {
    store(at, static_cast<uint32_t>(address));
    store(at + 4, static_cast<uint32_t>(address >> 32));
  }
  uint32_t* bell(uint32_t number) const;
  bool await_ready(bool ready) noexcept;
  uint32_t admin(AdminOp op, const char* what, uint32_t space, uint64_t memory, uint32_t word10, uint32_t word11 = 0);
  void leave() noexcept;
  void reset();
  void identify();

  std::string name_;
  std::unique_ptr<DriveBus> bus_;
  uint32_t* registers_;
  DriveFacts facts_;
  std::unique_ptr<std::byte, void (*)(void*)> memory_;  // commands, completions, answers: a page each
  std::vector<uint64_t> addresses_;
  uint32_t sent_ = 0;
};

}  // namespace tiering
