// The random numbers of walks with restart, the same on CPU and GPU.
#pragma once

#include <cstdint>

#include "tiering/sampling/random.hpp"

namespace tiering {

/// Numbers that a walk may take: one for every step, and one after every round over the metapath for the restart. Walk w
/// of a node has the w-th so many of the node's stream.
constexpr uint64_t walk_stride(int64_t walk_length, uint64_t steps) {
  return static_cast<uint64_t>(walk_length) * (steps + 1);
}

/// Whether a walk goes on after a round that is not its last; it ends with probability restart / 2^53.
constexpr bool walk_goes_on(Stream& random, uint64_t restart) { return restart == 0 || random.next() >> 11 >= restart; }

}  // namespace tiering
