// Turns requested rows of the ssd tier into few reads, and arrived reads into rows.
#pragma once

#include <tiering/io/gather.hpp>
#include <tuple>

namespace tiering {

/// Reads for a set of rows: add() every row, build() once, hand reads() and the plan to an engine. Rows (24 bytes each) are
/// sorted by place, neighbors and duplicates merged. With checksums whole pages are read, and each is compared before a
/// row is written out of it.
class ReadPlan final : public ReadSink {
 public:
  ReadPlan(const SsdGeometry& geometry, const RowWriter& rows, const ImageSet& images, uint32_t max_read,
           std::byte* out, const PageChecksums& checksums)
      : geometry_(geometry),
        rows_(rows),
        images_(images),
        checksums_(checksums),
        unit_(checksums.empty() ? 1 : geometry.page_bytes),
        align_(std::max(images.offset_alignment, unit_)),
        max_read_(max_read),
        out_(out) {}

  void reserve(size_t rows) { pieces_.reserve(rows); }
  /// Requests the local-th row of the ssd tier as row `out_row` of the output.
  void add(int64_t local, int64_t out_row) {
    const auto [image, offset] = geometry_.place(local);
    pieces_.push_back(Piece{offset, out_row * rows_.out_bytes, static_cast<uint32_t>(image)});
  }

  void build() {
    std::sort(pieces_.begin(), pieces_.end(), [](const Piece& a, const Piece& b) {
      return std::tie(a.image, a.offset, a.target) < std::tie(b.image, b.offset, b.target);
    });
    for (size_t first = 0; first < pieces_.size();) {
      Read read{};
      const size_t last = extend_read(first, read);
      read.into = direct_target(read, {first, last});
      direct_reads_ += read.into != nullptr;
      read_bytes_ += read.bytes;
      reads_.push_back(read);
      ranges_.push_back({first, last});
      first = last;
    }
    if (images_.images.size() > 1) interleave_images();
  }

  std::span<const Read> reads() const noexcept { return reads_; }
  int64_t read_bytes() const noexcept { return read_bytes_; }
  int64_t direct_reads() const noexcept { return direct_reads_; }
  /// The first page that is not what its checksum says, by its number (SsdGeometry); kNoPage if there is none.
  int64_t bad_page() const noexcept { return bad_page_; }

  void ready(size_t index, const std::byte* data) noexcept override {
    const Read& read = reads_[index];
    if (const int64_t damaged = damaged_page(checksums_, geometry_, read, data); damaged != kNoPage) {
      for (int64_t first = bad_page_; first == kNoPage || damaged < first;)
        if (bad_page_.compare_exchange_weak(first, damaged)) break;
      return;
    }
    for (size_t p = ranges_[index].begin; p < ranges_[index].end; ++p) {
      const Piece& piece = pieces_[p];
      std::byte* target = out_ + piece.target;
      const std::byte* source = data + (piece.offset - read.offset);
      if (target != source) rows_.write(target, source);
    }
  }

 private:
  /// A row that was asked for.
  struct Piece {
    int64_t offset;  ///< byte in the image
    int64_t target;  ///< byte in the output
    uint32_t image;
  };
  struct PieceRange {
    size_t begin, end;
  };

  /// Builds the read that begins with piece `first`: takes in the following pieces that touch it or lie in the
  /// same page, as long as it stays within max_read. Returns the end of its pieces.
  size_t extend_read(size_t first, Read& read) const {
    const Piece& head = pieces_[first];
    const int64_t begin = round_down(head.offset, align_);
    int64_t need_end = round_up(head.offset + rows_.row_bytes, unit_);
    size_t last = first + 1;
    for (; last < pieces_.size(); ++last) {
      const Piece& piece = pieces_[last];
      if (piece.image != head.image) break;
      const bool touches = piece.offset <= round_up(need_end, align_);
      const bool same_page = piece.offset / geometry_.page_bytes == (need_end - 1) / geometry_.page_bytes;
      const int64_t end = std::max<int64_t>(need_end, round_up(piece.offset + rows_.row_bytes, unit_));
      if (!(touches || same_page) || round_up(end, align_) - begin > max_read_) break;
      need_end = end;
    }
    read.offset = begin;
    read.need = static_cast<uint32_t>(need_end - begin);
    read.bytes = static_cast<uint32_t>(round_up(need_end, align_) - begin);
    read.image = head.image;
    return last;
  }

  /// Where the read may land in the output itself: its bytes, in order, are exactly output bytes, not decoded, and the
  /// address is aligned. Null otherwise. Duplicates do not prevent it; ready() copies them from the first.
  std::byte* direct_target(const Read& read, PieceRange range) const {
    const Piece& head = pieces_[range.begin];
    std::byte* into = out_ + head.target;
    if (head.offset != read.offset || read.need != read.bytes || rows_.decodes()) return nullptr;
    if (reinterpret_cast<uintptr_t>(into) % static_cast<uintptr_t>(images_.memory_alignment) != 0) return nullptr;
    int64_t covered = 0;
    for (size_t p = range.begin; p < range.end; ++p) {
      const int64_t at = pieces_[p].offset - read.offset;
      if (pieces_[p].target - head.target != at) continue;
      if (at > covered) return nullptr;
      covered = std::max<int64_t>(covered, at + rows_.row_bytes);
    }
    return covered == read.bytes ? into : nullptr;
  }

  /// Reorders the reads, sorted by image so far, to take the images in turn, so that all devices work all the time.
  void interleave_images() {
    std::vector<size_t> at(images_.images.size() + 1, reads_.size());
    for (size_t r = reads_.size(); r-- > 0;) at[reads_[r].image] = r;
    for (size_t image = images_.images.size(); image-- > 0;)
      if (at[image] == reads_.size() || reads_[at[image]].image != image) at[image] = at[image + 1];
    const std::vector<size_t> end(at.begin() + 1, at.end());
    std::vector<Read> reads;
    std::vector<PieceRange> ranges;
    reads.reserve(reads_.size());
    ranges.reserve(reads_.size());
    while (reads.size() < reads_.size())
      for (size_t image = 0; image < end.size(); ++image)
        if (at[image] < end[image]) {
          reads.push_back(reads_[at[image]]);
          ranges.push_back(ranges_[at[image]++]);
        }
    reads_ = std::move(reads);
    ranges_ = std::move(ranges);
  }

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
