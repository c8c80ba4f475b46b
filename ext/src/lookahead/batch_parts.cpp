#include <algorithm>
#include <numeric>
#include <string>
#include <tiering/errors.hpp>
#include <tiering/lookahead/batch_parts.hpp>
#include <utility>

namespace tiering {

std::vector<BatchPart> cut_batch(const SsdRows& rows, std::span<const SlotPool> pools, std::vector<uint32_t> batch) {
  const std::vector<size_t> pool_of = pools_of_tables(rows, pools);
  std::vector<int64_t> needed(pools.size(), 0), most(pools.size(), 0);
  size_t table = 0;
  for (const uint32_t row : batch) ++needed[pool_of[table = rows.table_of(row, table)]];
  bool whole = true;
  for (size_t p = 0; p < pools.size(); ++p) {
    TIERING_EXPECT(needed[p] == 0 || pools[p].slots > 0,
                   "a batch needs " + std::to_string(needed[p]) + " rows of " + std::to_string(pools[p].row_bytes) +
                       " bytes of the ssd tier, and the buffer has no room for any");
    const int64_t limit = std::max({int64_t{1}, std::min(pools[p].slots, kLeastPart), pools[p].slots / kPartsOfSlots});
    const int64_t parts = (needed[p] + limit - 1) / limit;
    whole = whole && parts <= 1;
    most[p] = parts == 0 ? 0 : (needed[p] + parts - 1) / parts;
  }
  std::vector<BatchPart> parts(1);
  if (whole) {
    parts.front().rows = std::move(batch);
    return parts;
  }
  std::vector<uint32_t> order(batch.size());
  std::iota(order.begin(), order.end(), uint32_t{0});
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return batch[a] < batch[b]; });
  std::vector<int64_t> taken(most.size(), 0);
  for (const uint32_t place : order) {
    const size_t p = pool_of[table = rows.table_of(batch[place], table)];
    if (taken[p] == most[p]) {
      parts.emplace_back();
      std::fill(taken.begin(), taken.end(), 0);
    }
    ++taken[p];
    parts.back().rows.push_back(batch[place]);
    parts.back().places.push_back(place);
  }
  return parts;
}

}  // namespace tiering
