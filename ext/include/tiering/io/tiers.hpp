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

/// Row geometry of the ssd tier: rows lie `stride` bytes apart in units, which are striped over images; a unit holds whole
/// rows, so that each row lies in one image. Unit u is in image u mod N, at byte (u div N) * unit_bytes. In a single image
/// of an older format rows may run on from unit to unit (rows_per_unit == 0).
struct SsdGeometry {
  int64_t first_unit = 0;
  int64_t stride = 0;
  int64_t rows_per_unit = 0;
  int64_t unit_bytes = 0;
  int64_t page_bytes = 0;  ///< what checksums and the reads of a GPU are of; units are whole pages
  int64_t num_images = 0;

  /// Where a row begins; the row goes on in the same image.
  struct Place {
    int64_t image;
    int64_t offset;
  };

  TIERING_SHARED constexpr Place place(int64_t local) const {
    if (rows_per_unit == 0) return {0, first_unit * unit_bytes + local * stride};
    const int64_t unit = first_unit + local / rows_per_unit;
    return {unit % num_images, unit / num_images * unit_bytes + local % rows_per_unit * stride};
  }
  /// Units of the first `rows` rows, and those before.
  TIERING_SHARED constexpr int64_t end_unit(int64_t rows) const {
    if (rows_per_unit == 0) return first_unit + (rows * stride + unit_bytes - 1) / unit_bytes;
    return first_unit + (rows + rows_per_unit - 1) / rows_per_unit;
  }
  /// Units of an image among the first `units` of all.
  TIERING_SHARED constexpr int64_t units_of(int64_t image, int64_t units) const {
    return (units - image + num_images - 1) / num_images;
  }
  /// Page p of image k has the number p * N + k.
  TIERING_SHARED constexpr int64_t image_of(int64_t page) const { return page % num_images; }
  TIERING_SHARED constexpr int64_t image_offset(int64_t page) const { return page / num_images * page_bytes; }

  /// Whether the values fit together, for rows of `row_bytes`.
  constexpr bool sound(int64_t row_bytes) const {
    return first_unit >= 0 && stride >= row_bytes && page_bytes >= 1 && unit_bytes >= page_bytes &&
           unit_bytes % page_bytes == 0 && num_images >= 1 && rows_per_unit >= 0 &&
           rows_per_unit <= unit_bytes / stride && (rows_per_unit > 0 || num_images == 1);
  }
};

}  // namespace tiering
