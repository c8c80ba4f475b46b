// Memory of the host for a pair of queues and for what its reads bring: one place for each command in flight.
//
// Layout: entries of both queues; doorbells, each in cache lines of its own; lists of pages; landing places. All of it
//         begins at page borders, so that a GPU can be given the whole as page-locked memory.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <tiering/nvme/prp.hpp>
#include <tiering/nvme/queue.hpp>

namespace tiering::nvme {

/// Places that reads land in, each with a list of its pages where it may need one. Owns nothing.
struct Landing {
  std::byte* begin = nullptr;
  uint32_t places = 0;
  uint32_t place_bytes = 0;  ///< whole pages

  static constexpr uint32_t whole_pages(uint32_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

  constexpr size_t lists_bytes() const { return place_bytes > 2 * kPageBytes ? size_t{places} * kPageBytes : 0; }
  constexpr size_t bytes() const { return lists_bytes() + size_t{places} * place_bytes; }
  constexpr std::byte* place(uint32_t number) const { return begin + lists_bytes() + size_t{number} * place_bytes; }

  constexpr std::byte* list(uint32_t number) const {
    return begin + (lists_bytes() > 0 ? size_t{number} * kPageBytes : 0);
  }

  /// Describes the first `bytes` of a place for a controller, which knows the page at p by `address(p)`.
  template <typename AddressOf>
  Prps prps(uint32_t number, uint32_t bytes, AddressOf&& address) const {
    return describe([&](uint32_t page) { return address(place(number) + size_t{page} * kPageBytes); }, 0, bytes,
                    reinterpret_cast<uint64_t*>(list(number)), address(list(number)));
  }
  /// The same for one that knows the memory by this process's addresses.
  Prps prps(uint32_t number, uint32_t bytes) const {
    return prps(number, bytes, [](const std::byte* page) { return reinterpret_cast<uint64_t>(page); });
  }
};

/// Where everything of a pair lies in one piece of memory. Owns nothing.
struct QueueMemory {
  std::byte* begin = nullptr;
  uint32_t depth = 0;        ///< entries of a queue
  uint32_t place_bytes = 0;  ///< of a landing place, one for each entry: whole pages; 0: there are none

  static constexpr size_t kBellBytes = kPageBytes;  ///< the two doorbells

  /// Entries that a queue needs for so many commands in flight.
  static constexpr uint32_t depth_for(uint32_t in_flight) { return std::bit_ceil(in_flight + 1); }
  static constexpr uint32_t whole_pages(uint32_t bytes) { return Landing::whole_pages(bytes); }

  constexpr size_t commands_bytes() const { return rounded(depth * sizeof(Command)); }
  constexpr size_t completions_bytes() const { return rounded(depth * sizeof(Completion)); }
  constexpr size_t queues_bytes() const { return commands_bytes() + completions_bytes() + kBellBytes; }
  constexpr size_t bytes() const { return queues_bytes() + landing().bytes(); }

  QueuePair pair() const {
    auto* bells = begin + commands_bytes() + completions_bytes();
    return {reinterpret_cast<Command*>(begin), reinterpret_cast<Completion*>(begin + commands_bytes()),
            reinterpret_cast<uint32_t*>(bells), reinterpret_cast<uint32_t*>(bells + kBellBytes / 2), depth};
  }
  constexpr Landing landing() const { return {begin + queues_bytes(), place_bytes > 0 ? depth : 0, place_bytes}; }
  /// Where the bytes of the command with this place in flight land.
  constexpr std::byte* place(uint32_t number) const { return landing().place(number); }
  Prps prps(uint32_t number, uint32_t bytes) const { return landing().prps(number, bytes); }

 private:
  static constexpr size_t rounded(size_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }
};

}  // namespace tiering::nvme
