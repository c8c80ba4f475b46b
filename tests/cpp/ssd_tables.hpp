// Small tables of the ssd tier at random, their bytes on images, and batches, for the tests of look-ahead.
#pragma once

#include <array>
#include <map>
#include <random>
#include <set>
#include <tiering/lookahead/plan.hpp>

namespace tiering::test {

using Random = std::mt19937_64;
using Bytes = std::vector<std::byte>;
using Batch = std::vector<uint32_t>;

inline int64_t below(Random& random, int64_t end) {
  return static_cast<int64_t>(random() % static_cast<uint64_t>(end));
}

/// Tables one behind the other, beginning at unit `unit`; units of so many pages, or of those of the largest row.
inline SsdRows make_rows(const std::vector<std::pair<int64_t, int64_t>>& sizes, int64_t page_bytes, int64_t images,
                         int64_t unit, int64_t pages = 1) {
  for (const auto& [rows, row_bytes] : sizes) pages = std::max(pages, (row_bytes + page_bytes - 1) / page_bytes);
  const int64_t unit_bytes = pages * page_bytes;
  std::vector<SsdTable> tables;
  for (const auto& [rows, row_bytes] : sizes) {
    const int64_t stride = (row_bytes + 3) / 4 * 4;
    tables.push_back({rows, row_bytes, {unit, stride, unit_bytes / stride, unit_bytes, page_bytes, images}});
    unit = tables.back().geometry.end_unit(rows);
  }
  return SsdRows(std::move(tables));
}

inline SsdRows random_rows(Random& random) {
  constexpr std::array<int64_t, 6> kBytes{4, 40, 512, 1536, 4096, 5732};
  std::vector<std::pair<int64_t, int64_t>> sizes;
  for (int64_t t = 1 + below(random, 3); t > 0; --t)
    sizes.push_back({1 + below(random, 40), kBytes[size_t(below(random, 6))]});
  return make_rows(sizes, random() % 2 ? 512 : 4096, 1 + below(random, 3), below(random, 4), 1 + below(random, 4));
}

inline Batch random_batch(Random& random, const SsdRows& rows, int64_t most) {
  std::set<uint32_t> found;
  for (int64_t i = below(random, most + 1); i > 0; --i)
    found.insert(static_cast<uint32_t>(below(random, rows.count())));
  Batch batch(found.begin(), found.end());
  std::shuffle(batch.begin(), batch.end(), random);
  return batch;
}

inline int64_t row_bytes(const SsdRows& rows, uint32_t row) { return rows.tables()[rows.table_of(row)].row_bytes; }

/// Slots that hold the largest batch, and up to `spare` more of each size.
inline std::vector<SlotPool> fitting_pools(Random& random, const SsdRows& rows, const std::vector<Batch>& batches,
                                           int64_t spare) {
  std::map<int64_t, int64_t> slots;
  for (const SsdTable& table : rows.tables()) slots[table.row_bytes] = 0;
  for (const Batch& batch : batches)
    for (auto& [bytes, most] : slots)
      most = std::max<int64_t>(
          most, std::count_if(batch.begin(), batch.end(), [&](uint32_t row) { return row_bytes(rows, row) == bytes; }));
  std::vector<SlotPool> pools;
  for (const auto& [bytes, most] : slots) pools.push_back({bytes, most + below(random, spare + 1)});
  return pools;
}

/// The bytes of all images, and the rows that they hold.
struct Disk {
  Disk(const SsdRows& rows, uint64_t seed) {
    const auto& at = rows.tables().front().geometry;
    Random random(seed);
    const int64_t images = at.num_images;
    image.resize(static_cast<size_t>(images),
                 Bytes(static_cast<size_t>((rows.units() + images - 1) / images * at.unit_bytes)));
    for (uint32_t row = 0; row < rows.count(); ++row) {
      const size_t t = rows.table_of(row);
      const SsdTable& table = rows.tables()[t];
      truth.emplace_back(static_cast<size_t>(table.row_bytes));
      for (int64_t i = 0; i < table.row_bytes; ++i) {
        const auto byte = static_cast<std::byte>(random());
        const auto place = table.geometry.place(row - rows.first(t));
        truth.back()[size_t(i)] = byte;
        image[size_t(place.image)][size_t(place.offset + i)] = byte;
      }
    }
  }
  std::vector<Bytes> image;
  std::vector<Bytes> truth;  ///< per row
};

}  // namespace tiering::test
