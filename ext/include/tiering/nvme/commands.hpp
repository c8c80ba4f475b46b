// Entries of NVMe queues as they lie in memory, and the one command that is ever sent: read.
//
// Source: NVM Express Base Specification 2.0, sections 3.3.3 (entries), 4.1.1 (physical region pages); NVM Command Set
//         Specification 1.0, section 3.2.4 (read).
#pragma once

#include <cstdint>

namespace tiering::nvme {

inline constexpr uint32_t kPageBytes = 4096;  ///< unit of physical region pages
inline constexpr uint32_t kMostEntries = 4096;
inline constexpr uint8_t kReadOpcode = 0x02;

/// Entry of a submission queue.
struct alignas(64) Command {
  uint32_t words[16];
};

/// Entry of a completion queue. The last word says that the others are there: it is written after them.
struct alignas(16) Completion {
  uint32_t words[4];
};

/// Status of a completion: status code type in bits 8 to 10, status code in bits 0 to 7.
enum Status : uint32_t {
  kSuccess = 0x00,
  kInvalidOpcode = 0x01,
  kInvalidField = 0x02,
  kDataTransferError = 0x04,
  kInternalError = 0x06,
  kInvalidNamespace = 0x0b,
  kPrpOffsetInvalid = 0x13,
  kLbaOutOfRange = 0x80,
  kUnrecoveredReadError = 0x281,
};

/// Where a read's bytes go, as the controller sees it: a first page, and a second or the list of all others.
struct Prps {
  uint64_t first = 0;
  uint64_t second = 0;
};

/// What a read asks for.
struct BlockRead {
  uint64_t block = 0;   ///< first logical block
  uint32_t blocks = 0;  ///< 1 to 65536
  uint32_t name_space = 1;
  Prps into{};
};

constexpr uint32_t low(uint64_t value) { return static_cast<uint32_t>(value); }
constexpr uint32_t high(uint64_t value) { return static_cast<uint32_t>(value >> 32); }
constexpr uint64_t joined(uint32_t low, uint32_t high) { return (uint64_t{high} << 32) | low; }

constexpr Command read_command(uint16_t id, const BlockRead& read) {
  Command command{};
  command.words[0] = (uint32_t{id} << 16) | kReadOpcode;
  command.words[1] = read.name_space;
  command.words[6] = low(read.into.first);
  command.words[7] = high(read.into.first);
  command.words[8] = low(read.into.second);
  command.words[9] = high(read.into.second);
  command.words[10] = low(read.block);
  command.words[11] = high(read.block);
  command.words[12] = read.blocks - 1;
  return command;
}

constexpr uint8_t opcode_of(const Command& command) { return static_cast<uint8_t>(command.words[0]); }
constexpr uint16_t id_of(const Command& command) { return static_cast<uint16_t>(command.words[0] >> 16); }

/// What a read command asks for; words that it does not use are not looked at.
constexpr BlockRead read_of(const Command& command) {
  return {joined(command.words[10], command.words[11]), (command.words[12] & 0xffff) + 1, command.words[1],
          Prps{joined(command.words[6], command.words[7]), joined(command.words[8], command.words[9])}};
}

/// The last word of a completion.
constexpr uint32_t completion_word(uint16_t id, uint32_t phase, uint32_t status) {
  return (status << 17) | (phase << 16) | id;
}
constexpr uint16_t completed_id(uint32_t word) { return static_cast<uint16_t>(word); }
constexpr uint32_t phase_of(uint32_t word) { return (word >> 16) & 1; }
constexpr uint32_t status_of(uint32_t word) { return (word >> 17) & 0x7ff; }

}  // namespace tiering::nvme
