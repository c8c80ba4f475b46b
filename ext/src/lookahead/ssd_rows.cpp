#include <algorithm>
#include <cstring>
#include <limits>
#include <tiering/lookahead/ssd_rows.hpp>

namespace tiering {
SsdRows::SsdRows(std::vector<SsdTable> tables) : tables_(std::move(tables)), first_{0} {
  TIERING_EXPECT(!tables_.empty(), "tables: expected at least one");
  const int64_t page_bytes = tables_.front().geometry.page_bytes, images = tables_.front().geometry.num_images;
  TIERING_EXPECT(page_bytes >= 1, "page_bytes: expected at least 1, found ", page_bytes);
  TIERING_EXPECT(images >= 1, "images: expected at least one");
  int64_t rows = 0;
  for (const SsdTable& table : tables_) {
    const SsdGeometry& at = table.geometry;
    TIERING_EXPECT(table.rows >= 0 && table.row_bytes > 0 && at.stride >= table.row_bytes && at.rows_per_page >= 0 &&
                       at.rows_per_page <= page_bytes / at.stride && at.page_bytes == page_bytes &&
                       at.num_images == images,
                   "tables: rows, stride, rows per page and page size do not fit together");
    TIERING_EXPECT(at.first_page >= pages_,
                   "tables: expected them in the order of their pages, each with pages of its own");
    rows += table.rows;
    TIERING_EXPECT(rows < std::numeric_limits<uint32_t>::max(), "the ssd tier has ", rows,
                   " rows, and look-ahead takes less than 2^32 - 1");
    if (table.rows > 0) pages_ = (at.address(table.rows - 1) + table.row_bytes - 1) / page_bytes + 1;
    first_.push_back(static_cast<uint32_t>(rows));
  }
}

RowReads::Extent RowReads::extent(uint32_t row) noexcept {
  table_ = rows_.table_of(row, table_);
  const SsdTable& table = rows_.tables()[table_];
  const SsdGeometry& at = table.geometry;
  const int64_t address = at.address(row - rows_.first(table_)), last = address + table.row_bytes - 1;
  int64_t first_page = address / at.page_bytes, last_page = last / at.page_bytes;
  first_page += (image_ - first_page % at.num_images + at.num_images) % at.num_images;
  last_page -= (last_page % at.num_images - image_ + at.num_images) % at.num_images;
  if (first_page > last_page) return {};
  const int64_t from = std::max(address, first_page * at.page_bytes) - first_page * at.page_bytes;
  const int64_t to = std::min(last + 1, (last_page + 1) * at.page_bytes) - last_page * at.page_bytes;
  return {at.image_offset(first_page) + from, at.image_offset(last_page) + to};
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
  table_ = rows_.table_of(row, table_);
  const SsdTable& table = rows_.tables()[table_];
  const SsdGeometry& at = table.geometry;
  const int64_t address = at.address(row - rows_.first(table_)), end = address + table.row_bytes;
  for (int64_t from = address; from < end;) {
    const int64_t page = from / at.page_bytes, to = std::min(end, (page + 1) * at.page_bytes);
    if (at.image_of(page) == image_) {
      const int64_t place = at.image_offset(page) + from % at.page_bytes - offset;
      if (place >= 0 && place + (to - from) <= static_cast<int64_t>(data.size()))
        std::memcpy(into + (from - address), data.data() + place, static_cast<size_t>(to - from));
    }
    from = to;
  }
}

}  // namespace tiering
