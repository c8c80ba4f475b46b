// Where a row lies: thresholds, peer interleaving and the row geometry of the ssd tier. Pure index arithmetic,
// constexpr and free of the standard library's containers, so that a device build can use the same header.
#pragma once

#include <cstdint>
#include <tiering/device/qualifiers.hpp>

namespace tiering {

/// The four tiers, in rank order.
enum class Tier : int { gpu = 0, peer = 1, cpu = 2, ssd = 3 };
inline constexpr int kNumTiers = 4;

/// Half-open rank ranges of the tiers: gpu [0, gpu_end), peer [gpu_end, peer_end), cpu [peer_end, cpu_end),
/// ssd [cpu_end, num_rows). A tier is empty where its two bounds are equal.
struct TierRanges {
  int64_t gpu_end = 0;
  int64_t peer_end = 0;
  int64_t cpu_end = 0;
  int64_t num_rows = 0;

  /// Tier of a rank inside [0, num_rows): three compares, no table.
  TIERING_SHARED constexpr Tier tier_of(int64_t rank) const {
    return rank < gpu_end ? Tier::gpu : rank < peer_end ? Tier::peer : rank < cpu_end ? Tier::cpu : Tier::ssd;
  }
};

/// Peer and slot of the local-th row of the peer tier when it is interleaved over `peers` peers.
struct PeerSlot {
  int64_t peer;
  int64_t slot;
};
TIERING_SHARED constexpr PeerSlot peer_slot(int64_t local, int64_t peers) { return {local % peers, local / peers}; }

/// Instead of a slot of a buffer: a row of the ssd tier lies in none.
inline constexpr uint32_t kNoSlot = ~uint32_t{0};

/// Row geometry of the ssd tier. A row no larger than a page never straddles one (rows_per_page > 0);
/// a larger row starts at byte local * stride from first_page and spans pages (rows_per_page == 0).
struct SsdGeometry {
  int64_t first_page = 0;
  int64_t stride = 0;
  int64_t rows_per_page = 0;
  int64_t page_bytes = 0;
  int64_t num_images = 0;

  /// Logical byte address of the local-th row: logical page * page_bytes + offset in the page.
  TIERING_SHARED constexpr int64_t address(int64_t local) const {
    const int64_t base = first_page * page_bytes;
    if (rows_per_page == 0) return base + local * stride;
    return base + local / rows_per_page * page_bytes + local % rows_per_page * stride;
  }
  /// Logical page p lies in image p mod N at byte (p div N) * page_bytes (BaM's stripe).
  TIERING_SHARED constexpr int64_t image_of(int64_t page) const { return page % num_images; }
  TIERING_SHARED constexpr int64_t image_offset(int64_t page) const { return page / num_images * page_bytes; }
};

}  // namespace tiering
