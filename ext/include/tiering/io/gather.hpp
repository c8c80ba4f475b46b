// The fused gather: rows of a tiered table, in request order, in one pass over the ids.
#pragma once

#include <tiering/codec/rows.hpp>
#include <tiering/io/page_hash.hpp>
#include <tiering/parallel.hpp>

namespace tiering {

/// Rows of the tiers that are in memory: stored rows, stride row_bytes. Not owned.
struct MemoryTiers {
  const std::byte* gpu = nullptr;
  std::vector<const std::byte*> peers;
  const std::byte* cpu = nullptr;
  const std::byte* ssd = nullptr;  ///< rows of the ssd tier, where they were all read into memory
};

/// An open engine over the images of the ssd tier; one batch of reads at a time (callers queue on the mutex). fork()
/// waits for the batch: reads that land in the caller's memory and a fork at the same time would lose bytes.
class SsdReader {
 public:
  /// `map`: rows that the page cache has are taken from there.
  SsdReader(ImageSet images, const EngineOptions& options, const std::string& engine, bool map = false);

  const ImageSet images;
  const std::vector<MappedImage> mapped;  ///< each image, or none
  const EngineOptions options;
  ForkMutex turn;

  const char* engine_name() const noexcept { return name_; }
  /// See EngineChoice; under `turn`, as is the engine.
  const std::string& fallback() const noexcept { return choice_.fallback(); }
  ReadEngine& engine() noexcept { return *engine_; }
  void fall_back(const RingError& error);

 private:
  EngineChoice choice_;
  std::unique_ptr<ReadEngine> engine_;
  std::atomic<const char*> name_;
};

/// A feature table spread over four tiers. Pointers must stay valid while the table is used.
struct TieredTable {
  RowWriter rows{0};
  TierRanges ranges;
  MemoryTiers memory;
  SsdGeometry ssd;
  SsdReader* reader = nullptr;  ///< needed when the ssd range is not empty
  PageChecksums checksums;      ///< cover every page of the table, or there are none
};

/// Counters of one gather; arrays are indexed by Tier.
struct GatherStats {
  std::array<int64_t, kNumTiers> rows{};
  std::array<int64_t, kNumTiers> bytes{};  ///< rows * row_bytes, as stored
  int64_t copy_nanoseconds = 0;            ///< wall time of copies from memory
  int64_t read_nanoseconds = 0;            ///< from the first read's submission to the last arrival; copies overlap
  int64_t reads = 0;                       ///< reads of SSD images
  int64_t read_bytes = 0;                  ///< bytes asked of the SSD images, alignment included
  int64_t direct_reads = 0;                ///< reads that landed where rows are wanted, without a copy
  int64_t bad_page = kNoPage;              ///< number of a page that differs from its checksum: `out` is then
                                           ///< unspecified
  std::string fallback;                    ///< why the reader left io_uring, if it did in this gather
};

class SlotArena;

/// Rows of the ssd tier that are in a buffer: `slots` says where, in the order of their ids; empty: they are not copied.
struct SlotRows {
  const SlotArena& arena;
  std::span<const uint32_t> slots;
};

/// Fills out (ids.size() rows of out_bytes, contiguous) with the rows of `ids`, in request order; those of the ssd tier are
/// read, unless they are `buffered`, or the reader maps images and the page cache has nearly all of these rows. Throws
/// InputError naming an id outside [0, num_rows) before anything is written, IoError when a read fails; `out` is then
/// unspecified.
GatherStats gather(const TieredTable& table, std::span<const int64_t> ids, std::byte* out, int threads,
                   const SlotRows* buffered = nullptr);

/// Where a row goes, and how.
struct RowPlace {
  std::byte* out = nullptr;
  const RowWriter* rows = nullptr;
};

/// Writes rows from their slots to where each belongs. Returns the nanoseconds that it took.
int64_t copy_slots(const SlotArena& arena, std::span<const uint32_t> slots, std::span<const RowPlace> places,
                   int threads);

}  // namespace tiering
