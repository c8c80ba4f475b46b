// A drive whose registers are plain memory: a thread does what a controller would, from an image in memory.
//
// Source: NVM Express Base Specification 2.0, sections 3.1.3 (registers), 5 (admin commands); NVM Command Set
//         Specification 1.0, section 4.1.5 (identify namespace). Pages are walked here once more, apart from prp.hpp.
#pragma once

#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <thread>
#include <tiering/nvme/commands.hpp>
#include <vector>

/// An image whose 8-byte words are their places.
inline std::vector<std::byte> numbered(size_t bytes) {
  std::vector<std::byte> image(bytes);
  for (size_t i = 0; i < bytes; i += 8) std::memcpy(&image[i], &i, 8);
  return image;
}

class EmulatedDrive {
 public:
  static constexpr size_t kRegisterBytes = 0x2000;
  /// Bits of addresses that are the other way for the drive: pages come in another order, and no address is the
  /// process's.
  static constexpr uint64_t kFlipped = 0x0000'ffff'ffff'f000;
  struct Flaws {
    bool never_ready = false;
    bool refuses_queues = false;
    bool fails_reads = false;     ///< those of block 8
    bool stays_on = false;        ///< whatever it is told
    uint32_t answers = ~0U;       ///< admin commands before it falls silent
    uint32_t metadata_bytes = 0;  ///< of a block
    uint32_t longest_read = 4;    ///< logarithm of pages; 0: any
    uint32_t stride = 0;          ///< logarithm of words from a doorbell to the next
  };

  EmulatedDrive(const std::vector<std::byte>& image, uint32_t block_bytes, Flaws flaws)
      : image_(image), block_bytes_(block_bytes), flaws_(flaws) {
    // 256 entries; queues contiguous; half a second to get ready; pages of 4 KiB.
    *reinterpret_cast<uint64_t*>(at(0x00)) =
        255 | (1ULL << 16) | (1ULL << 24) | (uint64_t{flaws.stride} << 32) | (1ULL << 37);
    *reinterpret_cast<uint32_t*>(at(0x08)) = 0x00010400;
    thread_ = std::thread([this] {
      while (!stopping_) {
        serve();
        sched_yield();
      }
    });
  }
  ~EmulatedDrive() {
    stopping_ = true;
    thread_.join();
  }
  EmulatedDrive(const EmulatedDrive&) = delete;
  EmulatedDrive& operator=(const EmulatedDrive&) = delete;

  std::span<std::byte> registers() { return registers_; }
  int reads() const { return reads_; }
  /// Whether it has been switched off, which it may see late.
  bool off() const {
    for (int i = 0; i < 5000 && enabled_; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return !enabled_;
  }
  int queues() const { return queues_; }
  uint32_t administered() const { return administered_; }
  /// From now on, no command is answered.
  void fall_silent() { silent_ = true; }
  /// Writes to where the last identify command wanted its answer, as a drive may that is slow.
  void answer_late() { std::memset(answer_.load(), 0xff, 4096); }

 private:
  struct Queue {
    uint64_t commands = 0, completions = 0;  ///< where they lie
    uint32_t depth = 0, completions_depth = 0, completions_id = 0, head = 0, written = 0, taken = 0;
  };

  std::byte* at(size_t offset) { return registers_.data() + offset; }
  uint32_t load(size_t offset) {
    return std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(at(offset))).load(std::memory_order_acquire);
  }
  void store(size_t offset, uint32_t value) {
    std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(at(offset))).store(value, std::memory_order_release);
  }

  /// What lies at an address of the drive.
  static std::byte* memory(uint64_t address) { return reinterpret_cast<std::byte*>(address ^ kFlipped); }

  void serve() {
    const bool enabled = (load(0x14) & 1) != 0 || (flaws_.stays_on && enabled_);
    if (enabled != enabled_) {
      enabled_ = enabled;
      submissions_.clear();
      completions_.clear();
      queues_ = 0;
      if (enabled) {
        const uint32_t sizes = load(0x24);
        submissions_[0] = Queue{*reinterpret_cast<uint64_t*>(at(0x28)), *reinterpret_cast<uint64_t*>(at(0x30)),
                                (sizes & 0xfff) + 1, ((sizes >> 16) & 0xfff) + 1};
        for (size_t bell = 0x1000; bell < kRegisterBytes; bell += 4) store(bell, 0);
      }
      store(0x1c, enabled && !flaws_.never_ready ? 1 : 0);
    }
    if (!enabled_ || flaws_.never_ready || silent_) return;
    for (uint32_t id = 0; id < 8; ++id) {
      const auto found = submissions_.find(id);
      if (found == submissions_.end()) continue;
      Queue& queue = found->second;
      for (const uint32_t tail = load(bell(2 * id)); queue.head != tail && !full(queue);) {
        uint32_t command[16];
        std::memcpy(command, memory(queue.commands) + 64 * queue.head, 64);
        queue.head = (queue.head + 1) % queue.depth;
        uint32_t answer = 0;
        if (id == 0 && administered_++ >= flaws_.answers) continue;
        const uint32_t status = id == 0 ? administer(command, answer) : read(command);
        complete(id, queue, command[0] >> 16, status, answer);
      }
    }
  }

  /// Doorbell `number`: even ones are of submission queues.
  size_t bell(size_t number) const { return 0x1000 + (number * 4 << flaws_.stride); }

  /// Whether nobody has looked at the completions that are there.
  bool full(Queue& queue) {
    const uint32_t depth = queue.completions_depth, rung = load(bell(2 * queue.completions_id + 1));
    queue.taken += (rung + depth - queue.taken % depth) % depth;
    return queue.written - queue.taken == depth - 1;
  }

  void complete(uint32_t id, Queue& queue, uint32_t command, uint32_t status, uint32_t answer) {
    const uint32_t place = queue.written % queue.completions_depth;
    auto* entry = reinterpret_cast<uint32_t*>(memory(queue.completions) + 16 * uint64_t{place});
    const uint32_t phase = (queue.written / queue.completions_depth + 1) & 1;
    entry[0] = answer;
    entry[1] = 0;
    entry[2] = (id << 16) | queue.head;
    std::atomic_ref<uint32_t>(entry[3]).store(command | (phase << 16) | (status << 17), std::memory_order_release);
    ++queue.written;
  }

  static uint64_t wide(const uint32_t* words) { return words[0] | (uint64_t{words[1]} << 32); }

  uint32_t administer(const uint32_t* command, uint32_t& answer) {
    const uint32_t id = command[10] & 0xffff, entries = (command[10] >> 16) + 1;
    switch (command[0] & 0xff) {
      case 0x06:
        identify(command[10] & 0xff, memory(wide(command + 6)));
        return 0;
      case 0x09:
      case 0x0a:
        answer = (3U << 16) | 3;  // four queues of each kind
        return 0;
      case 0x05:
        if (flaws_.refuses_queues) return 0x101;  // invalid queue identifier
        completions_[id] = Queue{0, wide(command + 6), 0, entries};
        return 0;
      case 0x01: {
        const uint32_t of = command[11] >> 16;
        if (!completions_.contains(of)) return 0x100;  // completion queue invalid
        submissions_[id] =
            Queue{wide(command + 6), completions_[of].completions, entries, completions_[of].completions_depth, of};
        ++queues_;
        store(0x1000 + 8 * id, 0);
        store(0x1004 + 8 * id, 0);
        return 0;
      }
      case 0x00:
        queues_ -= static_cast<int>(submissions_.erase(id));
        return 0;
      case 0x04:
        completions_.erase(id);
        return 0;
      default:
        return tiering::nvme::kInvalidOpcode;
    }
  }

  void identify(uint32_t what, std::byte* into) {
    std::memset(into, 0, 4096);
    if (what == 1) {
      std::memcpy(into + 4, "0123456789          ", 20);
      std::memcpy(into + 24, "EMULATED DRIVE                          ", 40);
      into[77] = static_cast<std::byte>(flaws_.longest_read);
      into[512] = std::byte{0x66};
      into[513] = std::byte{0x44};
      into[516] = std::byte{1};
    } else {
      const uint64_t blocks = image_.size() / block_bytes_;
      for (const size_t place : {0, 8, 16}) std::memcpy(into + place, &blocks, 8);
      into[128] = static_cast<std::byte>(flaws_.metadata_bytes);
      into[130] = static_cast<std::byte>(std::countr_zero(block_bytes_));  // logarithm of a block's bytes
    }
    answer_ = into;
  }

  uint32_t read(const uint32_t* command) {
    if ((command[0] & 0xff) != 0x02) return tiering::nvme::kInvalidOpcode;
    const uint64_t block = wide(command + 10);
    const uint64_t bytes = uint64_t{(command[12] & 0xffff) + 1} * block_bytes_;
    if ((block * block_bytes_) + bytes > image_.size()) return tiering::nvme::kLbaOutOfRange;
    if (flaws_.fails_reads && block == 8) return tiering::nvme::kUnrecoveredReadError;
    ++reads_;
    const uint64_t first = wide(command + 6), second = wide(command + 8);
    const std::byte* from = image_.data() + block * block_bytes_;
    uint64_t done = std::min<uint64_t>(bytes, 4096 - first % 4096);
    std::memcpy(memory(first), from, done);
    const bool listed = bytes - done > 4096;
    for (uint64_t page = 0; done < bytes; ++page) {
      const uint64_t to = listed ? reinterpret_cast<const uint64_t*>(memory(second))[page] : second;
      const uint64_t some = std::min<uint64_t>(4096, bytes - done);
      std::memcpy(memory(to), from + done, some);
      done += some;
    }
    return 0;
  }

  alignas(4096) std::array<std::byte, kRegisterBytes> registers_{};
  const std::vector<std::byte>& image_;
  uint32_t block_bytes_;
  Flaws flaws_;
  std::map<uint32_t, Queue> submissions_, completions_;
  std::atomic<bool> stopping_ = false, enabled_ = false, silent_ = false;
  std::atomic<int> reads_ = 0, queues_ = 0;
  std::atomic<uint32_t> administered_ = 0;
  std::atomic<std::byte*> answer_ = nullptr;
  std::thread thread_;
};
