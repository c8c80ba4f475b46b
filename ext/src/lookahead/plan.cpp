#include <bit>
#include <tiering/lookahead/plan.hpp>

namespace tiering {
namespace {

constexpr uint32_t kNoRow = ~uint32_t{0};
constexpr size_t kAhead = 16;  // entries looked ahead: maps of all rows are larger than caches
constexpr int64_t kAges = 4096;
// Rounds that grow: few of them, because short rounds read pages again; and batches known behind one, per batch of it.
constexpr int64_t kGrowth = 8, kGrowingHorizon = 8;

bool test(const Buffer<uint64_t>& bits, uint32_t row) { return (bits[row >> 6] >> (row & 63)) & 1; }
void set(Buffer<uint64_t>& bits, uint32_t row) { bits[row >> 6] |= uint64_t{1} << (row & 63); }
void clear(Buffer<uint64_t>& bits, uint32_t row) { bits[row >> 6] &= ~(uint64_t{1} << (row & 63)); }

/// The pool of each table. Throws InputError where there is none.
std::vector<size_t> pools_of_tables(const SsdRows& rows, std::span<const SlotPool> pools) {
  std::vector<size_t> chosen;
  for (const SsdTable& table : rows.tables()) {
    const auto pool = std::find_if(pools.begin(), pools.end(),
                                   [&](const SlotPool& known) { return known.row_bytes == table.row_bytes; });
    TIERING_EXPECT(pool != pools.end(), "pools: expected one for rows of ", table.row_bytes, " bytes");
    chosen.push_back(static_cast<size_t>(pool - pools.begin()));
  }
  return chosen;
}

}  // namespace

LookaheadPlan::LookaheadPlan(const SsdRows& rows, const std::vector<SlotPool>& pools)
    : rows_(rows),
      slot_of_(rows.count(), kNoSlot),
      next_use_(rows.count(), 0),
      wanted_((int64_t{rows.count()} + 63) / 64, 0),
      resident_(wanted_.size(), 0) {
  int64_t slots = 0;
  for (const SlotPool& pool : pools) {
    TIERING_EXPECT(pool.slots >= 0 && pool.row_bytes > 0 && slots + pool.slots < kNoSlot,
                   "slots: expected less than 2^32 - 1 of them, found ", slots + pool.slots);
    const auto begin = static_cast<uint32_t>(slots);
    slots += pool.slots;
    pools_.push_back({pool.row_bytes, begin, static_cast<uint32_t>(slots), begin, {}, 0});
  }
  pool_of_table_ = pools_of_tables(rows, pools);
  row_in_ = Buffer<uint32_t>(slots, kNoRow);
  last_use_ = Buffer<uint32_t>(slots, 0);
}

void LookaheadPlan::set_window(int64_t window, int64_t horizon, bool growing) {
  TIERING_EXPECT(window >= 1, "window: expected at least 1 batch, found ", window);
  TIERING_EXPECT(horizon >= 0, "horizon: expected 0 or more batches, found ", horizon);
  TIERING_EXPECT(future_.empty(), "window: expected no batch to wait, found ", waiting());
  window_ = window;
  horizon_ = horizon;
  most_ = growing ? std::max<int64_t>(1, window / kGrowth) : window;
}

void LookaheadPlan::add(std::vector<uint32_t> rows) {
  std::vector<int64_t> needed(pools_.size(), 0);
  for (const uint32_t row : rows) ++needed[pool_of(row)];
  for (size_t p = 0; p < pools_.size(); ++p) {
    const int64_t slots = pools_[p].end - pools_[p].begin;
    TIERING_EXPECT(needed[p] <= slots, "a batch needs ", needed[p], " rows of ", pools_[p].row_bytes,
                   " bytes of the ssd tier, and the buffer has room for ", slots);
  }
  ended_ = false;
  future_.push_back(std::move(rows));
  while (extend()) {
  }
}

/// Takes the next batch that waits into the open round. False: there is no other, or the round is full.
bool LookaheadPlan::extend() {
  if (full_ || open_ == waiting()) return false;
  const auto& batch = future_[open_];
  std::vector<int64_t> fresh(pools_.size(), 0);
  for (size_t i = 0; i < batch.size(); ++i) {
    if (i + kAhead < batch.size()) __builtin_prefetch(&wanted_[batch[i + kAhead] >> 6]);
    fresh[pool_of(batch[i])] += !test(wanted_, batch[i]);
  }
  for (size_t p = 0; p < pools_.size(); ++p) {
    full_ = full_ || pools_[p].needed + fresh[p] > pools_[p].end - pools_[p].begin;
  }
  if (full_) return false;
  for (size_t p = 0; p < pools_.size(); ++p) pools_[p].needed += fresh[p];
  for (const uint32_t row : batch) set(wanted_, row);
  full_ = ++open_ == most_;
  return !full_;
}

bool LookaheadPlan::ready() const noexcept {
  if (open_ == 0) return false;
  return ended_ ||
         (full_ && waiting() - open_ >= (most_ < window_ ? std::min(horizon_, kGrowingHorizon * most_) : horizon_));
}

/// next_use_ of every row that a batch from `from` on uses, as far as batches are known.
void LookaheadPlan::note_next_uses(int64_t from) {
  for (int64_t b = first_ + waiting() - 1; b >= from; --b) {
    const auto& batch = future_[b - first_];
    for (size_t i = 0; i < batch.size(); ++i) {
      if (i + kAhead < batch.size()) __builtin_prefetch(&next_use_[batch[i + kAhead]], 1);
      next_use_[batch[i]] = static_cast<uint32_t>(b);
    }
  }
}

/// Gives `slots` slots for rows of the open round: empty ones, then those whose rows are used last. `past`: the batch
/// behind the round. In the order in which batches under way will be done with them.
void LookaheadPlan::make_room(Pool& pool, int64_t slots, int64_t past, std::vector<uint32_t>& given) {
  given.clear();
  while (static_cast<int64_t>(given.size()) < slots && !pool.free.empty()) {
    given.push_back(pool.free.back());
    pool.free.pop_back();
  }
  while (static_cast<int64_t>(given.size()) < slots && pool.fresh < pool.end) given.push_back(pool.fresh++);
  const int64_t missing = slots - static_cast<int64_t>(given.size());
  if (missing > 0) {
    // By next use: batches behind the round, then those of unknown use.
    const int64_t unknown = waiting() - open_;
    auto key = [&](uint32_t row) {
      const int64_t use = next_use_[row];
      return use < past ? unknown : use - past;
    };
    std::vector<int64_t> number(static_cast<size_t>(unknown) + 1, 0);
    auto for_candidates = [&](auto&& body) {
      for (uint32_t s = pool.begin; s < pool.end; ++s) {
        if (s + kAhead < pool.end && row_in_[s + kAhead] != kNoRow) {
          __builtin_prefetch(&next_use_[row_in_[s + kAhead]]);
          __builtin_prefetch(&wanted_[row_in_[s + kAhead] >> 6]);
        }
        const uint32_t row = row_in_[s];
        if (row != kNoRow && !test(wanted_, row)) body(s, row);
      }
    };
    for_candidates([&](uint32_t, uint32_t row) { ++number[key(row)]; });
    int64_t last = unknown, beyond = 0;  // rows of a later use than `last` all go
    while (beyond + number[last] < missing) beyond += number[last--];
    std::vector<uint32_t> tied;
    for_candidates([&](uint32_t s, uint32_t row) {
      if (const int64_t use = key(row); use > last)
        given.push_back(s);
      else if (use == last)
        tied.push_back(s);
    });
    const auto share = tied.begin() + (missing - beyond);
    auto colder = [&](uint32_t a, uint32_t b) { return row_in_[a] > row_in_[b]; };
    if (share < tied.end()) std::nth_element(tied.begin(), share, tied.end(), colder);
    given.insert(given.end(), tied.begin(), share);
  }
  // Sorted by last use, older ones than kAges batches as one.
  auto age = [&](uint32_t s) { return std::min(kAges - 1, first_ - std::min<int64_t>(first_, last_use_[s])); };
  std::vector<int64_t> place(static_cast<size_t>(kAges) + 1, 0);
  for (const uint32_t s : given) ++place[static_cast<size_t>(kAges - 1 - age(s)) + 1];
  for (size_t a = 1; a < place.size(); ++a) place[a] += place[a - 1];
  std::vector<uint32_t> sorted(given.size());
  for (const uint32_t s : given) sorted[place[kAges - 1 - age(s)]++] = s;
  given = std::move(sorted);
}

Round LookaheadPlan::next() {
  Round round{.first = first_, .last = first_ + open_};
  std::vector<int64_t> lacking(pools_.size(), 0);
  for (int64_t w = 0; w < wanted_.size(); ++w) {
    round.needed += std::popcount(wanted_[w]);
    for (uint64_t bits = wanted_[w] & ~resident_[w]; bits != 0; bits &= bits - 1) {
      const auto row = static_cast<uint32_t>(w * 64 + std::countr_zero(bits));
      round.rows.push_back(row);
      ++lacking[pool_of(row)];
    }
  }
  note_next_uses(round.last);
  std::vector<std::vector<uint32_t>> room(pools_.size());
  for (size_t p = 0; p < pools_.size(); ++p) make_room(pools_[p], lacking[p], round.last, room[p]);

  std::vector<size_t> taken(pools_.size(), 0);
  round.slots.reserve(round.rows.size());
  round.after.reserve(round.rows.size());
  for (const uint32_t row : round.rows) {
    const size_t p = pool_of(row);
    const uint32_t slot = room[p][taken[p]++], old = row_in_[slot];
    if (old != kNoRow) {
      slot_of_[old] = kNoSlot;
      clear(resident_, old);
    }
    slot_of_[row] = slot;
    set(resident_, row);
    row_in_[slot] = row;
    round.slots.push_back(slot);
    round.after.push_back(last_use_[slot]);
  }
  for (int64_t b = round.first; b < round.last; ++b) {
    std::vector<uint32_t> batch = std::move(future_.front());
    future_.pop_front();
    for (size_t i = 0; i < batch.size(); ++i) {
      if (i + kAhead < batch.size()) __builtin_prefetch(&slot_of_[batch[i + kAhead]]);
      batch[i] = slot_of_[batch[i]];
      last_use_[batch[i]] = static_cast<uint32_t>(b + 1);
    }
    round.batch_slots.push_back(std::move(batch));
  }
  first_ = round.last;
  most_ = std::min(window_, kGrowth * most_);
  open_round();
  return round;
}

/// Begins a round with the batches that wait.
void LookaheadPlan::open_round() {
  std::fill_n(wanted_.data(), wanted_.size(), 0);
  for (Pool& pool : pools_) pool.needed = 0;
  open_ = 0;
  full_ = false;
  while (extend()) {
  }
}

void LookaheadPlan::drop_waiting() {
  first_ += waiting();
  future_.clear();
  open_round();
}

void LookaheadPlan::forget(const Round& round) {
  for (size_t i = 0; i < round.rows.size(); ++i) {
    const uint32_t row = round.rows[i], slot = round.slots[i];
    if (slot_of_[row] != slot) continue;  // a later round, forgotten before this one, had taken the slot
    slot_of_[row] = kNoSlot;
    clear(resident_, row);
    row_in_[slot] = kNoRow;
    last_use_[slot] = 0;
    pools_[pool_of(row)].free.push_back(slot);
  }
}

ReadCount count_reads(const SsdRows& rows, std::span<const uint32_t> list, int64_t num_images, const ReadRules& rules) {
  ReadCount count;
  for (int64_t image = 0; image < num_images; ++image) {
    RowReads reads(rows, static_cast<uint32_t>(image), rules);
    RowRead found;
    for (size_t at = 0; reads.next(list, at, list.size(), found);) {
      ++count.reads;
      count.bytes += found.read.bytes;
    }
  }
  return count;
}

std::vector<BatchPart> cut_batch(const SsdRows& rows, std::span<const SlotPool> pools, std::vector<uint32_t> batch) {
  const std::vector<size_t> pool_of = pools_of_tables(rows, pools);
  std::vector<int64_t> needed(pools.size(), 0), most(pools.size(), 0);
  size_t table = 0;
  for (const uint32_t row : batch) ++needed[pool_of[table = rows.table_of(row, table)]];
  bool whole = true;
  for (size_t p = 0; p < pools.size(); ++p) {
    TIERING_EXPECT(needed[p] == 0 || pools[p].slots > 0, "a batch needs ", needed[p], " rows of ", pools[p].row_bytes,
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
