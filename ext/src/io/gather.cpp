// The fused gather.
//
// Returns: rows of a table in request order, from four tiers, and what each tier did.
// Approach: one pass checks the ids, counts tiers and collects ssd rows; the reads are submitted; while they
// are in
//   flight the rows in memory are copied, tier by tier, and the engine is polled between blocks; then the
//   rest is awaited.
// Memory: 24 bytes per requested ssd row (more where rows span pages), depth * max_read of buffers in the
// engine. Parallelism: `threads` threads copy rows from memory; thread 0 polls. Each output row has one
// writer.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <tiering/io/gather.hpp>
#include <tiering/io/read_plan.hpp>
#include <tiering/parallel.hpp>
#include <utility>

namespace tiering {
namespace {

constexpr int64_t kBlockRows = 128;          // ids per block of memory copies; the engine is polled after each
constexpr int64_t kPrefetchRows = 8;         // rows looked ahead: enough to cover the latency of memory
constexpr int64_t kParallelBytes = 1 << 20;  // below this a team of threads costs more than it saves

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Address of a row that lies in one of the memory tiers.
template <Tier tier>
const std::byte* memory_row(const TieredTable& table, int64_t rank) {
  const int64_t local = rank - table.ranges.begin(tier);
  if constexpr (tier == Tier::gpu) return table.memory.gpu + local * table.row_bytes;
  if constexpr (tier == Tier::cpu) return table.memory.cpu + local * table.row_bytes;
  const PeerSlot at = peer_slot(local, static_cast<int64_t>(table.memory.peers.size()));
  return table.memory.peers[static_cast<size_t>(at.peer)] + at.slot * table.row_bytes;
}

void prefetch(const std::byte* row, int64_t bytes) {
  for (int64_t at = 0; at < std::min<int64_t>(bytes, 512); at += 64) __builtin_prefetch(row + at);
}

template <Tier tier>
void copy_block(const TieredTable& table, std::span<const int64_t> ids, int64_t block, std::byte* out) {
  const int64_t begin = block * kBlockRows;
  const int64_t end = std::min<int64_t>(begin + kBlockRows, static_cast<int64_t>(ids.size()));
  const int64_t first = table.ranges.begin(tier), past = table.ranges.end(tier);
  auto inside = [&](int64_t i) { return ids[size_t(i)] >= first && ids[size_t(i)] < past; };
  for (int64_t i = begin; i < end; ++i) {
    const int64_t ahead = i + kPrefetchRows;
    if (ahead < end && inside(ahead)) prefetch(memory_row<tier>(table, ids[size_t(ahead)]), table.row_bytes);
    if (inside(i))
      std::memcpy(out + i * table.row_bytes, memory_row<tier>(table, ids[size_t(i)]), size_t(table.row_bytes));
  }
}

template <Tier tier>
void copy_tier(const TieredTable& table, std::span<const int64_t> ids, std::byte* out, int threads, ReadEngine* engine,
               GatherStats& stats) {
  constexpr auto t = static_cast<size_t>(tier);
  if (stats.rows[t] == 0) return;
  const int64_t start = now();
  const int64_t blocks = (static_cast<int64_t>(ids.size()) + kBlockRows - 1) / kBlockRows;
  const int team = stats.bytes[t] >= kParallelBytes ? static_cast<int>(std::min<int64_t>(threads, blocks)) : 1;
  std::atomic<int64_t> next{0};
  run_team(team, [&](int member) {
    for (int64_t b = next.fetch_add(1); b < blocks; b = next.fetch_add(1)) {
      copy_block<tier>(table, ids, b, out);
      if (member == 0 && engine != nullptr) engine->poll();
    }
  });
  stats.nanoseconds[t] = now() - start;
}

/// Checks every id and counts the tiers.
void classify(const TieredTable& table, std::span<const int64_t> ids, GatherStats& stats) {
  for (size_t i = 0; i < ids.size(); ++i) {
    TIERING_EXPECT(ids[i] >= 0 && ids[i] < table.ranges.num_rows, "ids[" + std::to_string(i) + "] is " +
                                                                      std::to_string(ids[i]) + ", outside 0.." +
                                                                      std::to_string(table.ranges.num_rows - 1));
    ++stats.rows[static_cast<size_t>(table.ranges.tier_of(ids[i]))];
  }
  for (size_t t = 0; t < kNumTiers; ++t) stats.bytes[t] = stats.rows[t] * table.row_bytes;
}

void fill_plan(const TieredTable& table, std::span<const int64_t> ids, int64_t rows, ReadPlan& plan) {
  plan.reserve(static_cast<size_t>(rows));
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] >= table.ranges.cpu_end) plan.add(ids[i] - table.ranges.cpu_end, static_cast<int64_t>(i));
  plan.build();
}

/// A batch in flight: whatever happens, no read outlives it.
class Flight {
 public:
  Flight(SsdReader& reader, ReadPlan& plan) : turn_(reader.turn), reader_(reader), plan_(plan), start_(now()) {
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
    stats.nanoseconds[static_cast<size_t>(Tier::ssd)] = now() - start_;
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

SsdReader::SsdReader(ImageSet opened, const EngineOptions& given, const std::string& engine)
    : images(std::move(opened)), options(given), automatic_(engine == "auto") {
  if (automatic_) fallback_ = uring_unavailable();
  const char* const best = fallback_.empty() ? "io_uring" : "threads";
  try {
    engine_ = make_engine(automatic_ ? best : engine, images, options);
    name_ = engine_->name();
  } catch (const RingError& error) {
    fall_back(error);
  }
}

void SsdReader::fall_back(const RingError& error) {
  if (!automatic_) throw error;
  fallback_ = error.what();
  engine_ = make_threads_engine(images, options);
  name_ = engine_->name();
}

GatherStats gather(const TieredTable& table, std::span<const int64_t> ids, std::byte* out, int threads) {
  GatherStats stats;
  classify(table, ids, stats);
  const int64_t ssd_rows = stats.rows[static_cast<size_t>(Tier::ssd)];
  std::optional<ReadPlan> plan;
  std::optional<Flight> flight;
  if (ssd_rows > 0 && table.row_bytes > 0) {
    plan.emplace(table.ssd, table.row_bytes, table.reader->images, table.reader->options.max_read, out,
                 table.checksums);
    fill_plan(table, ids, ssd_rows, *plan);
    flight.emplace(*table.reader, *plan);
  }
  ReadEngine* engine = flight ? flight->engine() : nullptr;
  copy_tier<Tier::gpu>(table, ids, out, threads, engine, stats);
  copy_tier<Tier::peer>(table, ids, out, threads, engine, stats);
  copy_tier<Tier::cpu>(table, ids, out, threads, engine, stats);
  if (flight) flight->land(stats);
  return stats;
}

}  // namespace tiering
