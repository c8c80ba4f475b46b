// The words of NVMe's queues that are used here: commands, completions, and the admin commands that make queues.
// Source: NVM Express Base Specification 1.4, sections 3.1 (registers), 4.2, 4.6 (entries), 5 (admin commands).
#pragma once

#include <cstdint>
#include <tiering/device/qualifiers.hpp>

namespace tiering {

struct alignas(64) DriveCommand {
  uint32_t words[16] = {};
};

struct alignas(16) DriveCompletion {
  uint32_t words[4] = {};

  /// Of the last word, which a drive writes last.
  TIERING_SHARED static constexpr uint32_t id(uint32_t word) { return word & 0xffff; }
  TIERING_SHARED static constexpr uint32_t phase(uint32_t word) { return word >> 16 & 1; }
  /// Status code and its type; 0: success. Whether a retry may help is left out.
  TIERING_SHARED static constexpr uint32_t status(uint32_t word) { return word >> 17 & 0x7ff; }
};

inline constexpr int64_t kDrivePage = 4096;  ///< memory page of the drives, in bytes: CC.MPS 0

/// The phase bit of the `number`-th completion of a queue of `depth` entries, a power of two.
TIERING_SHARED constexpr uint32_t phase_of(uint32_t number, uint32_t depth) { return (number & depth) == 0 ? 1 : 0; }

/// Reads `blocks` from `block` on to one or two memory pages, at drive addresses.
TIERING_SHARED constexpr DriveCommand read_command(uint32_t id, uint64_t block, uint32_t blocks, uint64_t first,
                                                   uint64_t second) {
  DriveCommand command;
  command.words[0] = id << 16 | 2;
  command.words[1] = 1;  // namespace
  command.words[6] = static_cast<uint32_t>(first);
  command.words[7] = static_cast<uint32_t>(first >> 32);
  command.words[8] = static_cast<uint32_t>(second);
  command.words[9] = static_cast<uint32_t>(second >> 32);
  command.words[10] = static_cast<uint32_t>(block);
  command.words[11] = static_cast<uint32_t>(block >> 32);
  command.words[12] = blocks - 1;
  return command;
}

enum class AdminOp : uint32_t { create_submission = 1, create_completion = 5, identify = 6, set_features = 9 };

}  // namespace tiering
