#include <algorithm>
#include <cstring>
#include <limits>
#include <tiering/lookahead/ssd_rows.hpp>

namespace tiering {
SsdRows::SsdRows(std::vector<SsdTable> tables) : tables_(std::move(tables)), first_{0} {
  TIERING_EXPECT(!tables_.empty(), "tables: expected at least one");
  const SsdGeometry& shared = tables_.front().geometry;
  int64_t rows = 0;
  for (const SsdTable& table : tables_) {
    const SsdGeometry& at = table.geometry;
    TIERING_EXPECT(table.rows >= 0 && table.row_bytes > 0 && at.sound(table.row_bytes) &&
                       at.unit_bytes == shared.unit_bytes && at.page_bytes == shared.page_bytes &&
                       at.num_images == shared.num_images,
                   "tables: rows, stride, rows per unit, unit, page and images do not fit together");
    TIERING_EXPECT(at.first_unit >= units_, "tables: expected them in the order of their units, each with its own");
    rows += table.rows;
    TIERING_EXPECT(rows < std::numeric_limits<uint32_t>::max(), "the ssd tier has ", rows,
                   " rows, and look-ahead takes less than 2^32 - 1");
    if (table.rows > 0) units_ = at.end_unit(table.rows);
    first_.push_back(static_cast<uint32_t>(rows));
  }
}

RowReads::Extent RowReads::extent(uint32_t row) noexcept {
  table_ = rows_.table_of(row, table_);
  const SsdTable& table = rows_.tables()[table_];
  const auto [image, offset] = table.geometry.place(row - rows_.first(table_));
  if (image != image_) return {};
  return {offset, offset + table.row_bytes};
}

bool RowReads::next(std::span<const uint32_t> list, size_t& at, size_t limit, RowRead& found) {
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

void RowReads::copy(uint32_t row, int64_t offset, std::span<const std::byte> data, std::byte* into) noexcept {
  const Extent own = extent(row);
  const int64_t at = own.begin - offset;
  if (own.begin < own.end && at >= 0 && own.end - offset <= static_cast<int64_t>(data.size()))
    std::memcpy(into, data.data() + at, static_cast<size_t>(own.end - own.begin));
}

}  // namespace tiering
