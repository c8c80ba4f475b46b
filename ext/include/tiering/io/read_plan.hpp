// Turns requested rows of the ssd tier into few reads, and arrived reads into rows.
#pragma once

#include <atomic>
#include <tiering/codec/rows.hpp>
#include <tiering/io/page_hash.hpp>

namespace tiering {

/// A row that was asked for.
struct Piece {
  int64_t offset;  ///< byte in the image
  int64_t target;  ///< byte in the output
  uint32_t image;
};

/// Reads for a set of rows: add() every row, build() once, hand reads() and the plan to an engine. Rows (24 bytes each) are
/// sorted by place, neighbours and duplicates merged. With checksums whole pages are read, and each is compared before a
/// row is written out of it.
class ReadPlan final : public ReadSink {
 public:
  ReadPlan(const SsdGeometry& geometry, const RowWriter& rows, const ImageSet& images, uint32_t max_read,
           std::byte* out, const PageChecksums& checksums);

  void reserve(size_t rows);
  /// Requests the local-th row of the ssd tier as row `out_row` of the output.
  void add(int64_t local, int64_t out_row);
  void build();

  std::span<const Read> reads() const noexcept { return reads_; }
  int64_t read_bytes() const noexcept { return read_bytes_; }
  int64_t direct_reads() const noexcept { return direct_reads_; }
  /// The first page that is not what its checksum says, by its number (SsdGeometry); kNoPage if there is none.
  int64_t bad_page() const noexcept { return bad_page_; }

  void ready(size_t index, const std::byte* data) noexcept override;

 private:
  struct PieceRange {
    size_t begin;
    size_t end;
  };

  size_t extend_read(size_t first, Read& read) const;
  std::byte* direct_target(const Read& read, PieceRange range) const;
  void interleave_images();

  SsdGeometry geometry_;
  RowWriter rows_;
  const ImageSet& images_;
  const PageChecksums& checksums_;
  int64_t unit_;   ///< bytes that are read as a whole: a page where checksums are compared
  int64_t align_;  ///< where they begin
  uint32_t max_read_;
  std::byte* out_;
  std::vector<Piece> pieces_;
  std::vector<Read> reads_;
  std::vector<PieceRange> ranges_;  ///< pieces of each read
  int64_t read_bytes_ = 0;
  int64_t direct_reads_ = 0;
  std::atomic<int64_t> bad_page_{kNoPage};
};

}  // namespace tiering
