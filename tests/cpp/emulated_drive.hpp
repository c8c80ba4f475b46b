// NVMe drives that threads of the host play, as awkward as the standard allows: commands are taken at the doorbell and
// completed out of order, memory is known by other addresses than the process's.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <tiering/nvme/drive_queues.hpp>
#include <utility>
#include <vector>

#include "check.hpp"

namespace tiering::test {

inline constexpr uint64_t kFlip = 0x0000'5a5a'a5a5'0000;  // of an address, as drives know it

/// One drive: an image in memory, and a thread that serves its registers and queues.
class EmulatedDrive {
 public:
  std::atomic<bool> silent = false, repeats_id = false;  ///< repeats_id: the last before it falls silent
  std::atomic<bool> unordered = false;  ///< pages are seen when somebody flushes, whatever completions say
  std::atomic<int64_t> bad_block = -1;
  std::atomic<int> milliseconds = 0;  ///< that each completion takes
  std::atomic<int64_t> reads = 0;
  std::vector<std::byte> image;
  DriveFacts facts{
      .blocks = 0, .block_bytes = 512, .metadata_bytes = 0, .most_depth = 1024};  ///< that it gives of itself
  uint32_t most_pairs = 8;

  EmulatedDrive(uint32_t block_bytes, int64_t image_bytes, uint32_t number)
      : image(static_cast<size_t>(image_bytes)), block_bytes_(block_bytes), random_(number) {
    for (auto& byte : image) byte = static_cast<std::byte>(random_());
    facts.block_bytes = block_bytes;
    facts.blocks = image.size() / block_bytes;
    set_register(0x04, 1 << 5);                            // NVM commands; pages of 4 KiB
    set_register(0x00, 2 << 24 | (facts.most_depth - 1));  // ready within a second
  }
  ~EmulatedDrive() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }

  void start() {
    thread_ = std::thread([this] {
      for (int idle = 0; !stop_; ++idle) {
        obey_registers();
        for (Served& queue : queues_)
          if (!silent && step(queue)) idle = 0;
        if (idle < 100)
          std::this_thread::yield();
        else  // leaves the processor to others
          std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    });
  }

  /// Shows the pages that an unordered drive has written.
  void flush() {
    const std::lock_guard lock(mutex_);
    for (auto& write : std::exchange(unseen_, {})) write();
  }

  /// What a process opens; the drive must live longer.
  std::unique_ptr<DriveBus> open() { return std::make_unique<Bus>(*this); }

 private:
  class Bus final : public DriveBus {
   public:
    explicit Bus(EmulatedDrive& drive) : drive_(drive) {}
    uint32_t* registers() override { return drive_.registers_; }
    std::vector<uint64_t> map(std::byte* memory, size_t bytes, bool of_device) override {
      const size_t page = of_device ? kDevicePage : kHostPage;
      CHECK(reinterpret_cast<uintptr_t>(memory) % page == 0);
      std::vector<uint64_t> addresses;
      for (size_t at = 0; at < bytes; at += page) addresses.push_back(reinterpret_cast<uintptr_t>(memory + at) ^ kFlip);
      return addresses;
    }
    void unmap(std::byte*) noexcept override {}

   private:
    EmulatedDrive& drive_;
  };

  struct Served {
    DriveCommand* commands = nullptr;
    DriveCompletion* completions = nullptr;
    uint32_t* bells = nullptr;  // of submissions, of completions
    uint32_t depth = 0;
    uint32_t taken = 0, written = 0, rung = 0;  // commands taken, completions written, those that the host has taken
    std::vector<DriveCommand> held{};
    std::vector<uint32_t> ids{};  // of all commands completed
  };

  std::atomic_ref<uint32_t> reg(size_t at) { return std::atomic_ref(registers_[at / 4]); }
  void set_register(size_t at, uint32_t value) { reg(at).store(value, std::memory_order_release); }

  void obey_registers() {
    const bool enabled = (reg(0x14).load(std::memory_order_acquire) & 1) != 0, ready = (reg(0x1c).load() & 1) != 0;
    if (enabled && !ready) {
      const auto address = [this](size_t at) { return (reg(at).load() | uint64_t{reg(at + 4).load()} << 32) ^ kFlip; };
      const uint32_t depth = (reg(0x24).load() & 0xfff) + 1;
      for (size_t at = 0x1000; at < DriveBus::kRegisterBytes; at += 4) set_register(at, 0);
      admin_ = {reinterpret_cast<DriveCommand*>(address(0x28)), reinterpret_cast<DriveCompletion*>(address(0x30)),
                registers_ + 0x400, depth};
    }
    if (enabled != ready) {
      queues_.clear();
      set_register(0x1c, enabled ? 1 : 0);
    }
    if (!enabled || !ready) return;
    const uint32_t tail = std::atomic_ref(admin_.bells[0]).load(std::memory_order_acquire);
    for (; admin_.taken % admin_.depth != tail; ++admin_.taken) {
      const DriveCommand& command = admin_.commands[admin_.taken % admin_.depth];
      const auto [result, status] = obey(command);
      DriveCompletion& entry = admin_.completions[admin_.taken % admin_.depth];
      entry.words[0] = result;
      const uint32_t word = command.words[0] >> 16 | phase_of(admin_.taken, admin_.depth) << 16 | status << 17;
      std::atomic_ref(entry.words[3]).store(word, std::memory_order_release);
    }
  }

  /// The result and the status of an admin command.
  std::pair<uint32_t, uint32_t> obey(const DriveCommand& command) {
    const auto& words = command.words;
    auto* const memory = reinterpret_cast<std::byte*>(wide(words, 6) ^ kFlip);
    const uint32_t id = words[10] & 0xffff, depth = (words[10] >> 16) + 1;
    switch (static_cast<AdminOp>(words[0] & 0xff)) {
      case AdminOp::identify:
        identify(memory);
        return {0, 0};
      case AdminOp::set_features:
        return {(most_pairs - 1) << 16 | (most_pairs - 1), words[10] == 7 ? 0 : 2};
      case AdminOp::create_completion:
        if (made_.size() <= id) made_.resize(id + 1);
        made_[id] = reinterpret_cast<DriveCompletion*>(memory);
        return {0, status_of_queue(id, memory)};
      case AdminOp::create_submission:
        CHECK((words[11] >> 16) == id && (words[11] & 1) == 1);
        queues_.push_back({reinterpret_cast<DriveCommand*>(memory), made_[id], registers_ + 0x400 + 2 * id, depth});
        return {0, status_of_queue(id, memory)};
    }
    return {0, 1};
  }

  uint32_t status_of_queue(uint32_t id, const std::byte* memory) const {
    if (id == 0 || id > most_pairs) return 0x101;
    return reinterpret_cast<uintptr_t>(memory) % DriveBus::kHostPage == 0 ? 0 : 0x13;
  }

  void identify(std::byte* answer) const {
    std::memset(answer, 0, DriveBus::kHostPage);
    std::memcpy(answer, &facts.blocks, sizeof facts.blocks);
    const uint32_t format = facts.metadata_bytes | static_cast<uint32_t>(std::countr_zero(facts.block_bytes)) << 16;
    std::memcpy(answer + 128 + 4 * 3, &format, sizeof format);
    answer[26] = std::byte{3};
  }

  /// Whether there was anything to do.
  bool step(Served& served) {
    const uint32_t tail = std::atomic_ref(served.bells[0]).load(std::memory_order_acquire);
    CHECK(tail < served.depth);
    for (; served.taken % served.depth != tail; ++served.taken)
      served.held.push_back(served.commands[served.taken % served.depth]);
    const uint32_t bell = std::atomic_ref(served.bells[1]).load(std::memory_order_acquire);
    served.rung += (bell - served.rung) % served.depth;
    CHECK(served.taken - served.rung < served.depth);  // else the host has written over commands or completions
    for (auto n = random_() % 4;
         n > 0 && !silent && !served.held.empty() && served.written - served.rung < served.depth - 1; --n) {
      std::swap(served.held.back(), served.held[random_() % served.held.size()]);
      const DriveCommand command = served.held.back();
      served.held.pop_back();
      std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
      complete(served, command);
    }
    return !served.held.empty();
  }

  void complete(Served& served, const DriveCommand& command) {
    const auto& words = command.words;
    CHECK((words[0] & 0xff) == 2 && words[1] == 1);
    const uint64_t block = wide(words, 10), bytes = (uint64_t{words[12] & 0xffff} + 1) * block_bytes_;
    uint32_t status = 0, id = words[0] >> 16;
    if ((block * block_bytes_) + bytes > image.size())
      status = 0x80;
    else if (static_cast<int64_t>(block) == bad_block)
      status = 0x281;
    else
      land(block * block_bytes_, bytes, wide(words, 6), wide(words, 8));
    ++reads;
    served.ids.push_back(id);
    if (repeats_id && !served.held.empty()) {
      const uint32_t wrong = earlier_id(served, served.held.front().words[0] >> 16, id);
      silent = wrong != id;
      id = wrong;
    }
    DriveCompletion& entry = served.completions[served.written % served.depth];
    const uint32_t phase = phase_of(served.written++, served.depth);
    std::atomic_ref(entry.words[3]).store(id | phase << 16 | status << 17, std::memory_order_release);
  }

  /// An id under which the landing place of `coming`, a command that is under way, was filled before; else `id`.
  uint32_t earlier_id(const Served& served, uint32_t coming, uint32_t id) const {
    const auto same = [&](uint32_t other) { return other % served.depth == coming % served.depth; };
    const auto found = std::find_if(served.ids.rbegin(), served.ids.rend(), same);
    return found == served.ids.rend() ? id : *found;
  }

  void land(uint64_t from, uint64_t bytes, uint64_t first, uint64_t second) {
    const auto write = [=, this] {
      for (uint64_t done = 0; done < bytes; done += kDrivePage) {
        const uint64_t to = (done == 0 ? first : second) ^ kFlip;
        std::memcpy(reinterpret_cast<void*>(to), &image[from + done], std::min<uint64_t>(kDrivePage, bytes - done));
      }
    };
    if (!unordered) return write();
    const std::lock_guard lock(mutex_);
    unseen_.push_back(write);
  }

  static uint64_t wide(const uint32_t* words, int at) { return words[at] | uint64_t{words[at + 1]} << 32; }

  alignas(4096) uint32_t registers_[DriveBus::kRegisterBytes / 4] = {};
  uint32_t block_bytes_;
  std::mt19937 random_;
  std::vector<Served> queues_;
  Served admin_ = {};
  std::vector<DriveCompletion*> made_;  // completion queues, by number
  std::mutex mutex_;
  std::vector<std::function<void()>> unseen_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

/// Drives with pages of random bytes, and queues to read from them, in memory of the host.
class DriveRig {
 public:
  std::vector<std::unique_ptr<EmulatedDrive>> drives;
  std::vector<DriveQueue> queues;
  unsigned long long failure = DriveFailure::kNone;
  unsigned long long rest = 0;
  std::vector<uint32_t> cursors;
  uint32_t stop = 0;
  uint64_t patience = 5'000'000'000;

  /// `pages`: of all drives; `begin`: number of each queue's first command, a multiple of two rounds.
  explicit DriveRig(const QueueShape& shape, uint32_t block_bytes = 512, int64_t pages = 400, uint32_t begin = 0)
      : block_bytes_(block_bytes),
        shape_(shape),
        memory_(std::aligned_alloc(QueueShape::kChunk, static_cast<size_t>(shape.bytes())), &std::free) {
    std::vector<std::byte*> registers;
    for (uint32_t d = 0; d < shape.drives; ++d) {
      const int64_t own = (pages - d + shape.drives - 1) / shape.drives;
      drives.push_back(std::make_unique<EmulatedDrive>(block_bytes, own * shape.page_bytes, d));
      drives.back()->start();
      opened_.push_back(std::make_unique<Drive>("drive", drives.back()->open()));
      registers.push_back(reinterpret_cast<std::byte*>(opened_.back()->bus().registers()));
    }
    auto* const memory = static_cast<std::byte*>(memory_.get());
    std::memset(memory, 0, static_cast<size_t>(shape.bytes()));
    queues = make_queues(opened_, shape, memory, opened_[0]->bus().map(memory, shape.bytes(), true), registers,
                         [](std::byte* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); });
    for (DriveQueue& queue : queues) queue.submitted = queue.reaped = queue.copied = begin;
    cursors.resize(shape.drives);
  }

  /// Drives whose pages are seen when somebody flushes: launches read and copy by turns.
  void disorder() {
    for (auto& drive : drives) drive->unordered = true;
    rest_ = &rest;
  }
  void flush() {
    for (auto& drive : drives) drive->flush();
  }
  DriveSet set() {
    return {queues.data(), shape_.drives, shape_.pairs, shape_.depth,   std::countr_zero(block_bytes_),
            patience,      &stop,         &failure,     cursors.data(), rest_};
  }
  /// A byte of the images, so many behind a place.
  std::byte byte_at(const SsdGeometry::Place& place, int64_t behind) const {
    return drives[place.image]->image[place.offset + behind];
  }
  int64_t reads() const {
    int64_t sum = 0;
    for (auto& drive : drives) sum += drive->reads;
    return sum;
  }

 private:
  uint32_t block_bytes_;
  unsigned long long* rest_ = nullptr;
  QueueShape shape_;
  std::unique_ptr<void, decltype(&std::free)> memory_;
  std::vector<std::unique_ptr<Drive>> opened_;  // these end first
};

}  // namespace tiering::test
