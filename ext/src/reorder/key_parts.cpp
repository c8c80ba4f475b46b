// Positions of keys by the range in which the keys lie. The span of all ranges is cut into cells of 2^shift keys, up to
// 16 for each part; a cell knows the parts of its first key and of its last: mostly one, else what lies between is
// searched. Keys are counted by part, then each finds its part again, and its position goes there through two cache
// lines (line_writer.hpp). Memory: 4 bytes per key, 8 from 2^32 keys on, which are the result; up to 1 MiB of cells;
// 152 bytes per part and thread.
#include <tiering/line_writer.hpp>
#include <tiering/reorder.hpp>
#include <tiering/scan_columns.hpp>

namespace tiering {
namespace {

constexpr int64_t kCellsPerPart = 16, kFewestCells = int64_t{1} << 12, kMostCells = int64_t{1} << 17;
constexpr int64_t kKeysPerThread = int64_t{1} << 14;  ///< at least: fewer are not worth a thread

uint64_t distance(int64_t from, int64_t to) { return static_cast<uint64_t>(to) - static_cast<uint64_t>(from); }

/// Finds the part of a key.
class PartFinder {
 public:
  explicit PartFinder(std::span<const int64_t> bounds) : bounds_(bounds) {
    TIERING_EXPECT(!bounds.empty(), "bounds: expected one entry more than there are parts, found none");
    for (size_t j = 1; j < bounds.size(); ++j)
      TIERING_EXPECT(bounds[j - 1] <= bounds[j], "bounds[", j, "]: expected ", bounds[j - 1],
                     " or more, as before it, found ", bounds[j]);
    width_ = distance(bounds.front(), bounds.back());
    if (width_ > 0) make_cells();
  }

  int64_t parts() const { return static_cast<int64_t>(bounds_.size()) - 1; }

  /// Calls f(position, part) for the keys at positions [begin, end) in order; throws for the first in no range.
  template <typename Key, typename F>
  void for_keys(std::span<const Key> keys, int64_t begin, int64_t end, F&& f) const {
    const Key* const key = keys.data();
    const int64_t first = bounds_.front();
    auto ahead = [=](int64_t k) { prefetch_stream(key + k); };
    for_stream(begin, end, ahead, [&, first](int64_t k) {
      const uint64_t offset = distance(first, key[k]);
      if (offset >= width_) refuse(k, key[k]);
      const Cell& cell = cells_[offset >> shift_];
      f(k, cell.first == cell.last ? cell.first : search(cell, key[k]));
    });
  }

 private:
  struct Cell {
    uint32_t first, last;  ///< parts of its first key and of its last
  };

  void make_cells() {
    const auto wanted = static_cast<uint64_t>(std::clamp(kCellsPerPart * parts(), kFewestCells, kMostCells));
    while ((width_ - 1) >> shift_ >= wanted) ++shift_;
    cells_.resize(static_cast<size_t>((width_ - 1) >> shift_) + 1);
    const Cell all{0, static_cast<uint32_t>(parts() - 1)};
    for (size_t c = 0; c < cells_.size(); ++c) {
      const uint64_t first = uint64_t{c} << shift_, last = std::min(first + ((uint64_t{1} << shift_) - 1), width_ - 1);
      cells_[c] = {search(all, key_at(first)), search(all, key_at(last))};
    }
  }

  int64_t key_at(uint64_t offset) const {
    return static_cast<int64_t>(static_cast<uint64_t>(bounds_.front()) + offset);
  }

  /// The last part that does not begin behind the key, among those of a cell.
  uint32_t search(Cell cell, int64_t key) const {
    const auto begin = bounds_.begin() + 1 + cell.first;
    return cell.first + static_cast<uint32_t>(std::upper_bound(begin, bounds_.begin() + 1 + cell.last, key) - begin);
  }

  [[noreturn, gnu::cold, gnu::noinline]] void refuse(int64_t position, int64_t key) const {
    const std::string found = "keys[" + std::to_string(position) + "] is " + std::to_string(key);
    if (width_ == 0) throw InputError(found + ": expected no keys, as bounds has no range that could hold one");
    refuse_input(found, ", outside the ranges of bounds, ", bounds_.front(), "..", bounds_.back() - 1);
  }

  std::span<const int64_t> bounds_;
  uint64_t width_ = 0;  ///< keys that the ranges span
  int shift_ = 0;
  std::vector<Cell> cells_;
};

template <typename Position, typename Key>
KeyParts partition_into(std::span<const Key> keys, const PartFinder& finder, int threads) {
  auto made = bucket_records<Position>(
      static_cast<int64_t>(keys.size()), finder.parts(), threads, [&](int64_t begin, int64_t end, auto put) {
        finder.for_keys(keys, begin, end, [=](int64_t k, uint32_t part) { put(part, static_cast<Position>(k)); });
      });
  return {std::move(made.records), std::move(made.counts)};
}

}  // namespace

KeyParts partition_keys(const IdSpan& keys, std::span<const int64_t> bounds, int threads, int64_t wide) {
  const PartFinder finder(bounds);
  const int64_t worth = keys.size / std::max(kKeysPerThread, finder.parts());
  const auto team = static_cast<int>(std::clamp<int64_t>(worth, 1, threads));
  return keys.visit([&](const auto& ids) {
    return keys.size < wide ? partition_into<uint32_t>(ids, finder, team) : partition_into<int64_t>(ids, finder, team);
  });
}

}  // namespace tiering
