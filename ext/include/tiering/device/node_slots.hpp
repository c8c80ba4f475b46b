// Numbering of a batch's unique nodes without order of execution: a hash table that keeps, for every id, its local id
// or, until that is known, the first edge that leads to it, so local ids come out in order of discovery, as a single
// thread gives them. The caller's `Atomics` (of a GPU, or a host) has peek(where), a read that may race;
// exchange_if(where, expected, next), which returns what stood there; lower(where, value).
#pragma once

#include "tiering/sampling/random.hpp"

namespace tiering {

struct NodeSlots {
  static constexpr int64_t kEmpty = -1;
  static constexpr uint32_t kNew = 0x80000000U;  ///< this bit: an edge's number follows, not a local id

  int64_t* keys = nullptr;     ///< ids, kEmpty where there is none; filled with 0xff before a batch
  uint32_t* values = nullptr;  ///< local id, or kNew | number of an edge; filled with 0xff before a batch
  int bits = 0;                ///< there are 2^bits slots

  static constexpr int kFewestBits = 8;
  /// Bits for `nodes` ids at most: no more than half of the slots are taken.
  static constexpr int bits_for(int64_t nodes) {
    int bits = kFewestBits;
    while ((int64_t{1} << bits) < 2 * nodes) ++bits;
    return bits;
  }

  /// Slot of an id, which is entered if it is new.
  template <typename Atomics>
  TIERING_SHARED constexpr uint32_t find_or_add(int64_t id, Atomics atomics) const {
    const uint64_t mask = (uint64_t{1} << bits) - 1;
    uint64_t at = (static_cast<uint64_t>(id) * kGolden) >> (64 - bits);
    for (;; at = (at + 1) & mask) {
      int64_t found = atomics.peek(keys + at);
      if (found == kEmpty) found = atomics.exchange_if(keys + at, kEmpty, id);
      if (found == kEmpty || found == id) return static_cast<uint32_t>(at);
    }
  }

  /// Enters that edge number `edge` leads to an id: known ids keep their local id, new ones the lowest edge.
  template <typename Atomics>
  TIERING_SHARED constexpr uint32_t reach(int64_t id, uint32_t edge, Atomics atomics) const {
    const uint32_t slot = find_or_add(id, atomics);
    atomics.lower(values + slot, kNew | edge);
    return slot;
  }

  /// Whether edge number `edge` is the first to lead to the node of a slot; once all edges are entered.
  TIERING_SHARED constexpr bool is_first(uint32_t slot, uint32_t edge) const { return values[slot] == (kNew | edge); }

  /// Local id of the node of a slot. `known`: nodes before these edges; `ranks`: per edge, first edges before it.
  TIERING_SHARED constexpr int64_t local_id(uint32_t slot, int64_t known, const uint32_t* ranks) const {
    const uint32_t value = values[slot];
    return (value & kNew) == 0 ? value : known + ranks[value & ~kNew];
  }
};

}  // namespace tiering
