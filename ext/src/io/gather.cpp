// The fused gather: one pass checks the ids, counts tiers and collects ssd rows; the reads are submitted; while they
// are in flight the rows in memory are copied by `threads` threads, of which the first polls the engine between blocks;
// then the rest is awaited. Memory: 24 bytes per requested ssd row, depth * max_read of buffers in the engine. Where all
// rows lie in memory, each block copies and counts its own ids.
#include <optional>
#include <tiering/lookahead/ssd_rows.hpp>
#include <tiering/scan_columns.hpp>

#include "read_plan.hpp"

namespace tiering {
namespace {

constexpr int64_t kBlockRows = 512;          // ids per block of memory copies; the engine is polled after each
constexpr int64_t kPrefetchRows = 8;         // rows looked ahead: enough to cover the latency of memory
constexpr int64_t kPrefetchBytes = 1024;     // of a row; the processor goes on by itself
constexpr int64_t kParallelBytes = 1 << 20;  // below this a team of threads costs more than it saves
constexpr int64_t kTried = 64;               // rows by which a call knows whether the page cache has its rows

/// Address of a row of the ssd tier in the images of a reader that maps them.
const std::byte* mapped_row(const TieredTable& table, int64_t local) {
  const auto [image, offset] = table.ssd.place(local);
  return table.reader->mapped[image].begin() + offset;
}

/// Whether the reader maps the images, and the page cache has nearly all rows of the ssd tier among `ids`, by a sample.
bool in_page_cache(const TieredTable& table, std::span<const int64_t> ids) {
  if (table.reader == nullptr || table.reader->mapped.empty() || !table.checksums.empty()) return false;
  const TierRanges& ranges = table.ranges;
  const int64_t units = table.ssd.end_unit(ranges.num_rows - ranges.cpu_end);
  for (int64_t k = 0; k < table.ssd.num_images; ++k)
    if (!table.reader->mapped[k].covers(table.ssd.units_of(k, units) * table.ssd.unit_bytes)) return false;
  const auto count = static_cast<int64_t>(ids.size()), step = (count + kTried - 1) / kTried;
  int64_t tried = 0, missing = 0;
  for (int64_t first = 0; first < count; first += step)
    for (int64_t i = first; i < std::min(count, first + step); ++i) {
      if (ids[i] < ranges.cpu_end || ids[i] >= ranges.num_rows) continue;
      const auto [image, offset] = table.ssd.place(ids[i] - ranges.cpu_end);
      missing += !table.reader->mapped[image].cached(offset);
      ++tried;
      break;
    }
  return missing * MappedImage::kSamplesPerMiss <= tried;
}

/// Address of a row that lies in memory; null for one of the ssd tier that does not, unless it is `mapped`.
const std::byte* memory_row(const TieredTable& table, int64_t rank, bool mapped = false) {
  const TierRanges& ranges = table.ranges;
  if (rank < ranges.gpu_end) return table.memory.gpu + rank * table.rows.row_bytes;
  if (rank >= ranges.cpu_end) {
    if (mapped) return mapped_row(table, rank - ranges.cpu_end);
    return table.memory.ssd == nullptr ? nullptr : table.memory.ssd + (rank - ranges.cpu_end) * table.rows.row_bytes;
  }
  if (rank >= ranges.peer_end) return table.memory.cpu + (rank - ranges.peer_end) * table.rows.row_bytes;
  const PeerSlot at = peer_slot(rank - ranges.gpu_end, static_cast<int64_t>(table.memory.peers.size()));
  return table.memory.peers[at.peer] + at.slot * table.rows.row_bytes;
}

/// Writes the rows of ids[begin, end), `row(i)` being where that of ids[i] lies, or null.
template <typename Row>
void write_block(const RowWriter& rows, int64_t begin, int64_t end, std::byte* out, Row&& row) {
  std::array<const std::byte*, kPrefetchRows> ahead{};
  for (int64_t i = begin; i < end + kPrefetchRows; ++i) {
    const std::byte*& place = ahead[i % kPrefetchRows];
    if (i >= begin + kPrefetchRows && place != nullptr) rows.write(out + (i - kPrefetchRows) * rows.out_bytes, place);
    place = i < end ? row(i) : nullptr;
    if (place != nullptr) prefetch_row(place, rows.row_bytes, kPrefetchBytes);
  }
}

/// Calls block(b) for the blocks of `rows` rows by as many threads as their bytes deserve; thread 0 polls too.
template <typename Block>
void for_row_blocks(int64_t rows, int64_t bytes, int threads, Block&& block, ReadEngine* engine = nullptr) {
  const int64_t blocks = (rows + kBlockRows - 1) / kBlockRows;
  const int team = bytes >= kParallelBytes ? static_cast<int>(std::min<int64_t>(threads, blocks)) : 1;
  for_blocks(team, blocks, [&](int64_t b, int member) {
    block(b);
    if (member == 0 && engine != nullptr) engine->poll();
  });
}

/// Throws for the first id outside the table.
void check_ids(std::span<const int64_t> ids, int64_t num_rows) {
  uint64_t largest = 0;  // of which negative ids are, too: this loop takes several at a time
  for (const int64_t id : ids) largest = std::max(largest, static_cast<uint64_t>(id));
  for (size_t i = 0; largest >= static_cast<uint64_t>(num_rows) && i < ids.size(); ++i)
    TIERING_EXPECT(ids[i] >= 0 && ids[i] < num_rows, "ids[", i, "] is ", ids[i], ", outside 0..", num_rows - 1);
}

/// Copies the ids, checks them and counts the tiers. Another thread may write to the caller's while rows are gathered.
Buffer<int64_t> checked_ids(const TieredTable& table, std::span<const int64_t> given, GatherStats& stats) {
  Buffer<int64_t> ids = copied(given);
  check_ids(ids.span(), table.ranges.num_rows);
  for (const int64_t id : ids.span()) ++stats.rows[static_cast<size_t>(table.ranges.tier_of(id))];
  for (size_t t = 0; t < kNumTiers; ++t) stats.bytes[t] = stats.rows[t] * table.rows.row_bytes;
  return ids;
}

/// Copies rows that all lie in memory. A block's ids are copied first, because another thread may write to the caller's.
/// `mapped`: rows of the ssd tier are taken from mapped images.
GatherStats gather_memory(const TieredTable& table, std::span<const int64_t> given, std::byte* out, int threads,
                          bool mapped) {
  const auto start = nanoseconds(), rows = static_cast<int64_t>(given.size());
  check_ids(given, table.ranges.num_rows);
  std::array<std::atomic<int64_t>, kNumTiers> counted{};
  for_row_blocks(rows, rows * table.rows.out_bytes, threads, [&](int64_t b) {
    std::array<int64_t, kBlockRows> copied;
    std::array<const std::byte*, kBlockRows + kPrefetchRows> places;
    const int64_t begin = b * kBlockRows, count = std::min(rows - begin, kBlockRows);
    const std::span ids(copied.data(), static_cast<size_t>(count));
    std::copy_n(given.begin() + begin, count, ids.begin());
    check_ids(ids, table.ranges.num_rows);
    std::array<int64_t, kNumTiers - 1> below{};
    for (const int64_t id : ids) {
      below[0] += id < table.ranges.gpu_end;
      below[1] += id < table.ranges.peer_end;
      below[2] += id < table.ranges.cpu_end;
    }
    for (size_t t = 0; t < kNumTiers; ++t)
      counted[t] += (t < below.size() ? below[t] : count) - (t > 0 ? below[t - 1] : 0);
    for (int64_t i = 0; i < count + kPrefetchRows; ++i)
      places[i] = memory_row(table, ids[static_cast<size_t>(std::min(i, count - 1))], mapped);
    for (int64_t i = 0; i < kPrefetchRows; ++i) prefetch_row(places[i], table.rows.row_bytes, kPrefetchBytes);
    std::byte* to = out + begin * table.rows.out_bytes;
    for (int64_t i = 0; i < count; ++i, to += table.rows.out_bytes) {
      prefetch_row(places[i + kPrefetchRows], table.rows.row_bytes, kPrefetchBytes);
      table.rows.write(to, places[i]);
    }
  });
  GatherStats stats;
  for (size_t t = 0; t < kNumTiers; ++t) {
    stats.rows[t] = counted[t];
    stats.bytes[t] = stats.rows[t] * table.rows.row_bytes;
  }
  stats.copy_nanoseconds = nanoseconds() - start;
  return stats;
}

/// Plans the reads of the ssd tier's rows.
void fill_plan(const TieredTable& table, std::span<const int64_t> ids, int64_t rows, ReadPlan& plan) {
  plan.reserve(static_cast<size_t>(rows));
  for (int64_t i = 0; i < static_cast<int64_t>(ids.size()); ++i)
    if (const int64_t local = ids[i] - table.ranges.cpu_end; local >= 0) plan.add(local, i);
  plan.build();
}

/// A batch in flight: whatever happens, no read outlives it.
class Flight {
 public:
  Flight(SsdReader& reader, ReadPlan& plan) : turn_(reader.turn), reader_(reader), plan_(plan), start_(nanoseconds()) {
    try {
      begin();
    } catch (const RingError& error) {
      fall_back(error);
    }
  }
  Flight(const Flight&) = delete;
  Flight& operator=(const Flight&) = delete;
  ~Flight() {
    if (!landed_) reader_.engine().abandon();
  }
  ReadEngine* engine() noexcept { return &reader_.engine(); }
  /// Waits for the rest.
  void land(GatherStats& stats) {
    landed_ = true;
    try {
      reader_.engine().finish();
    } catch (const RingError& error) {
      fall_back(error);  // reads again what has arrived, too
      reader_.engine().finish();
    }
    stats.read_nanoseconds = nanoseconds() - start_;
    stats.reads = static_cast<int64_t>(plan_.reads().size());
    stats.read_bytes = plan_.read_bytes();
    stats.direct_reads = plan_.direct_reads();
    stats.bad_page = plan_.bad_page();
    if (fell_back_) stats.fallback = reader_.fallback();
  }

 private:
  void begin() { reader_.engine().start(plan_.reads(), plan_); }
  void fall_back(const RingError& error) {
    reader_.fall_back(error);
    fell_back_ = true;
    begin();
  }

  std::unique_lock<ForkMutex> turn_;
  SsdReader& reader_;
  ReadPlan& plan_;
  int64_t start_;
  bool landed_ = false;
  bool fell_back_ = false;
};

}  // namespace

SsdReader::SsdReader(ImageSet opened, const EngineOptions& given, const std::string& engine, bool map)
    : images(std::move(opened)),
      mapped(map ? std::vector<MappedImage>(images.images.begin(), images.images.end()) : std::vector<MappedImage>()),
      options(given),
      choice_(engine),
      engine_(choice_.make(images, options)),
      name_(engine_->name()) {}

void SsdReader::fall_back(const RingError& error) {
  choice_.fall_back(error);
  engine_ = choice_.make(images, options);
  name_ = engine_->name();
}

GatherStats gather(const TieredTable& table, std::span<const int64_t> given, std::byte* out, int threads,
                   const SlotRows* buffered) {
  const bool mapped = buffered == nullptr && table.memory.ssd == nullptr && in_page_cache(table, given);
  if (table.ranges.cpu_end == table.ranges.num_rows || mapped || (buffered == nullptr && table.memory.ssd != nullptr))
    return gather_memory(table, given, out, threads, mapped);
  GatherStats stats;
  const Buffer<int64_t> own = checked_ids(table, given, stats);
  const auto ids = own.span();
  const auto slots = buffered == nullptr ? std::span<const uint32_t>() : buffered->slots;
  const int64_t rows = own.size(), of_ssd = stats.rows[static_cast<size_t>(Tier::ssd)];
  TIERING_EXPECT(slots.empty() || of_ssd == static_cast<int64_t>(slots.size()),
                 "ids: expected those that the batch was planned with");
  const int64_t read = buffered == nullptr && table.memory.ssd == nullptr ? of_ssd : 0;
  std::optional<ReadPlan> plan;
  std::optional<Flight> flight;
  if (read > 0 && table.rows.row_bytes > 0) {
    plan.emplace(table.ssd, table.rows, table.reader->images, table.reader->options.max_read, out, table.checksums);
    fill_plan(table, ids, read, *plan);
    flight.emplace(*table.reader, *plan);
  }
  const int64_t start = nanoseconds();
  std::vector<int64_t> before(static_cast<size_t>(rows / kBlockRows) + 1, 0);  // each block: rows of the ssd tier
  for (int64_t i = 0, number = 0; i < rows && !slots.empty(); ++i) {
    if (i % kBlockRows == 0) before[i / kBlockRows] = number;
    number += ids[i] >= table.ranges.cpu_end;
  }
  if (const int64_t copied = rows - read; copied > 0)
    for_row_blocks(
        rows, copied * table.rows.out_bytes, threads,
        [&](int64_t b) {
          write_block(table.rows, b * kBlockRows, std::min(rows, (b + 1) * kBlockRows), out,
                      [&, number = before[b]](int64_t i) mutable {
                        const std::byte* const row = memory_row(table, ids[i]);
                        return row != nullptr || slots.empty() ? row : buffered->arena.slot(slots[number++]);
                      });
        },
        flight ? flight->engine() : nullptr);
  stats.copy_nanoseconds = nanoseconds() - start;
  if (flight) flight->land(stats);
  return stats;
}

int64_t copy_slots(const SlotArena& arena, std::span<const uint32_t> slots, std::span<const RowPlace> places,
                   int threads) {
  const int64_t start = nanoseconds(), rows = static_cast<int64_t>(slots.size());
  int64_t bytes = 0;
  for (const uint32_t slot : slots) bytes += arena.slot_bytes(slot);
  for_row_blocks(rows, bytes, threads, [&](int64_t b) {
    const int64_t end = std::min(rows, (b + 1) * kBlockRows);
    for (int64_t i = b * kBlockRows; i < end; ++i) {
      if (i + kPrefetchRows < end) {
        const uint32_t next = slots[i + kPrefetchRows];
        prefetch_row(arena.slot(next), arena.slot_bytes(next), kPrefetchBytes);
      }
      places[i].rows->write(places[i].out, arena.slot(slots[i]));
    }
  });
  return nanoseconds() - start;
}

}  // namespace tiering
