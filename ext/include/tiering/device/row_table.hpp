// Where the rows of a tiered table lie, as one kernel sees them: a table of addresses that it can read. The same
// header serves the GPU and, with addresses of host memory, the CPU.
#pragma once

#include <cstddef>
#include <tiering/codec/codes.hpp>
#include <tiering/io/tiers.hpp>

namespace tiering {

/// A table over four tiers, passed to kernels by value; owns nothing. Rows lie row_bytes apart.
struct RowTable {
  static constexpr int kMostPeers = 16;

  TierRanges ranges;
  int64_t row_bytes = 0;
  RowCodec codec;                    ///< with parameters that the kernel can read
  const std::byte* local = nullptr;  ///< the gpu tier
  /// The peer tier, interleaved: row i is the i / P-th of peer i % P.
  const std::byte* peers[kMostPeers] = {};
  int64_t num_peers = 0;
  const std::byte* host = nullptr;  ///< the cpu tier
  /// Rows of the ssd tier that were read into memory: by slot where a request has slots, else all of them by rank;
  /// null: none.
  const std::byte* staged = nullptr;

  TIERING_SHARED constexpr bool contains(int64_t rank) const {
    return static_cast<uint64_t>(rank) < static_cast<uint64_t>(ranges.num_rows);
  }

  /// Address of the row of a rank in the table. `slot` says where a row of the ssd tier was put; it is not looked at
  /// for others.
  TIERING_SHARED constexpr const std::byte* row(int64_t rank, int64_t slot) const {
    if (rank < ranges.gpu_end) return local + rank * row_bytes;
    if (rank < ranges.peer_end) {
      const PeerSlot at = peer_slot(rank - ranges.gpu_end, num_peers);
      return peers[at.peer] + at.slot * row_bytes;
    }
    return rank < ranges.cpu_end ? host + (rank - ranges.peer_end) * row_bytes : staged + slot * row_bytes;
  }

  /// Bytes of a row in a result.
  constexpr int64_t out_bytes() const { return codec.dim > 0 ? codec.out_bytes() : row_bytes; }

  /// All addresses and sizes that decide how wide accesses may be, or-ed together.
  uint64_t alignment_bits() const {
    uint64_t bits = static_cast<uint64_t>(row_bytes) | address(local) | address(host) | address(staged);
    for (int64_t p = 0; p < num_peers; ++p) bits |= address(peers[p]);
    return bits;
  }

 private:
  static uint64_t address(const std::byte* pointer) { return reinterpret_cast<uintptr_t>(pointer); }
};

}  // namespace tiering
