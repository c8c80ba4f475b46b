// Rows of the ssd tier of all node types as one sequence, in the order of their units, and the reads that cover a set.
#pragma once

#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <tiering/io/read_engine.hpp>
#include <tiering/io/tiers.hpp>

namespace tiering {

/// The rows of one node type that lie on SSD.
struct SsdTable {
  int64_t rows = 0;
  int64_t row_bytes = 0;
  SsdGeometry geometry;
};

/// Numbers the rows of several tables: a table's rows follow those of the tables before it, whose units come first.
class SsdRows {
 public:
  /// Throws InputError where units of a table begin before those of the one before end, the tables' units or images are
  /// not the same, a geometry contradicts itself, or there are 2^32 - 1 rows or more.
  explicit SsdRows(std::vector<SsdTable> tables) : tables_(std::move(tables)), first_{0} {
    TIERING_EXPECT(!tables_.empty(), "tables: expected at least one");
    const SsdGeometry& shared = tables_.front().geometry;
    int64_t rows = 0;
    for (const SsdTable& table : tables_) {
      const SsdGeometry& at = table.geometry;
      TIERING_EXPECT(table.rows >= 0 && table.row_bytes > 0 && at.sound(table.row_bytes) &&
                         at.unit_bytes == shared.unit_bytes && at.page_bytes == shared.page_bytes &&
                         at.num_images == shared.num_images,
                     "tables: rows, stride, rows per unit, unit, page and images do not match");
      TIERING_EXPECT(at.first_unit >= units_, "tables: expected them in the order of their units, each with its own");
      rows += table.rows;
      TIERING_EXPECT(rows < std::numeric_limits<uint32_t>::max(), "the ssd tier has ", rows,
                     " rows, but look-ahead supports less than 2^32 - 1");
      if (table.rows > 0) units_ = at.end_unit(table.rows);
      first_.push_back(static_cast<uint32_t>(rows));
    }
  }

  const std::vector<SsdTable>& tables() const noexcept { return tables_; }
  uint32_t count() const noexcept { return first_.back(); }
  uint32_t first(size_t table) const noexcept { return first_[table]; }
  /// Units up to the last that holds a row.
  int64_t units() const noexcept { return units_; }
  /// The table of a row, beginning the search at `hint`: rows are mostly looked up in ascending order.
  size_t table_of(uint32_t row, size_t hint = 0) const noexcept {
    while (row < first_[hint]) --hint;
    while (row >= first_[hint + 1]) ++hint;
    return hint;
  }

 private:
  std::vector<SsdTable> tables_;
  std::vector<uint32_t> first_;  ///< per table, and behind the last
  int64_t units_ = 0;
};

/// Reads begin and end at multiples of this, or of more where the disk wants it: its own unit, mostly.
inline constexpr int64_t kReadAlignment = 4096;

/// Alignment, gaps and length of reads of stripe files.
struct ReadRules {
  int64_t align = kReadAlignment;  ///< offsets and lengths are multiples of this
  int64_t unit = 1;                ///< bytes that are needed whole: a page where checksums are compared
  int64_t gap = 0;                 ///< bytes between two rows that one read reads through
  int64_t max_read = 256 << 10;    ///< bytes of the longest read
};

/// One read and the rows, by place in the ascending list, that it brings; others among them lie in other images.
struct RowRead {
  Read read{};
  size_t begin = 0;
  size_t end = 0;
};

/// Cuts an ascending list of rows into reads of one image, in the order of places. Throws nothing, allocates nothing.
class RowReads {
 public:
  RowReads(const SsdRows& rows, uint32_t image, const ReadRules& rules) : rows_(rows), image_(image), rules_(rules) {}

  /// The next read from place `at` of the list on, with rows before `limit`; `at` moves past its rows. False: no row
  /// before `limit` lies in this image.
  bool next(std::span<const uint32_t> list, size_t& at, size_t limit, RowRead& found) {
    Extent head;
    for (; at < limit; ++at) {
      head = extent(list[at]);
      if (head.begin < head.end) break;
    }
    if (at >= limit) return false;
    const int64_t step = std::max(rules_.align, rules_.unit);
    const int64_t begin = round_down(head.begin, step);
    int64_t need_end = round_up(head.end, rules_.unit);
    found.begin = at++;
    for (found.end = at; at < limit; ++at) {
      const Extent next = extent(list[at]);
      if (next.begin == next.end) continue;
      const int64_t end = std::max(need_end, round_up(next.end, rules_.unit));
      if (round_down(next.begin, step) > round_up(need_end, step) + rules_.gap) break;
      if (round_up(end, step) - begin > rules_.max_read) break;
      need_end = end;
      found.end = at + 1;
    }
    at = found.end;
    found.read = Read{begin, static_cast<uint32_t>(round_up(need_end, step) - begin),
                      static_cast<uint32_t>(need_end - begin), image_, nullptr};
    return true;
  }

  /// Bytes [begin, end) of the image that are the row; empty where it lies in another.
  struct Extent {
    int64_t begin = 0;
    int64_t end = 0;
  };
  Extent extent(uint32_t row) noexcept {
    table_ = rows_.table_of(row, table_);
    const SsdTable& table = rows_.tables()[table_];
    const auto [image, offset] = table.geometry.place(row - rows_.first(table_));
    if (image != image_) return {};
    return {offset, offset + table.row_bytes};
  }

  /// Copies a row, if bytes [offset, offset + data.size()) of the image hold it.
  void copy(uint32_t row, int64_t offset, std::span<const std::byte> data, std::byte* into) noexcept {
    const Extent own = extent(row);
    const int64_t at = own.begin - offset;
    if (own.begin < own.end && at >= 0 && own.end - offset <= static_cast<int64_t>(data.size()))
      std::memcpy(into, data.data() + at, static_cast<size_t>(own.end - own.begin));
  }

 private:
  const SsdRows& rows_;
  uint32_t image_;
  ReadRules rules_;
  size_t table_ = 0;  ///< of the row that was looked at last
};

/// Slots of one size: those of all tables with rows of `row_bytes` bytes.
struct SlotPool {
  int64_t row_bytes = 0;
  int64_t slots = 0;
};

/// Slots are numbered pool by pool, and lie in this order.
class SlotArena {
 public:
  SlotArena(const std::byte* memory, std::vector<SlotPool> pools) : memory_(memory), pools_(std::move(pools)) {}

  /// Where a slot begins, from the begin of the memory; its size is that of its pool's rows.
  int64_t offset(uint32_t slot) const noexcept {
    int64_t begin = 0, number = slot;
    size_t p = 0;
    for (; number >= pools_[p].slots; ++p) {
      number -= pools_[p].slots;
      begin += pools_[p].slots * pools_[p].row_bytes;
    }
    return begin + number * pools_[p].row_bytes;
  }
  const std::byte* slot(uint32_t slot) const noexcept { return memory_ + offset(slot); }
  int64_t slot_bytes(uint32_t slot) const noexcept {
    int64_t past = 0;
    size_t p = 0;
    while (slot >= (past += pools_[p].slots)) ++p;
    return pools_[p].row_bytes;
  }
  int64_t slots() const noexcept {
    return sum([](const SlotPool& pool) { return pool.slots; });
  }
  int64_t bytes() const noexcept {
    return sum([](const SlotPool& pool) { return pool.slots * pool.row_bytes; });
  }

 private:
  template <typename F>
  int64_t sum(F&& f) const noexcept {
    return std::transform_reduce(pools_.begin(), pools_.end(), int64_t{0}, std::plus<>(), f);
  }

  const std::byte* memory_;
  std::vector<SlotPool> pools_;
};

}  // namespace tiering
