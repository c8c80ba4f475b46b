// Look-ahead: where every plan puts rows, whatever the batches, and rows put together from reads. tests/native compares
// rounds with those of a plain rule.
#include <algorithm>
#include <map>
#include <set>
#include <tiering/lookahead/plan.hpp>
#include <vector>

#include "check.hpp"
#include "ssd_tables.hpp"

using namespace tiering;
using namespace tiering::test;

namespace {

/// Follows a plan round by round and checks what it does against what the batches say.
class Follower {
 public:
  Follower(const SsdRows& rows, const std::vector<SlotPool>& pools, const std::vector<Batch>& batches, int64_t begin)
      : rows_(rows), pools_(pools), batches_(batches), begin_(begin), next_(begin) {}

  void check(const LookaheadPlan& plan, const Round& round, int64_t window) {
    CHECK(round.first == next_ && round.last > round.first && round.last - round.first <= window);
    next_ = round.last;
    std::set<uint32_t> needed;
    for (int64_t b = round.first; b < round.last; ++b) needed.insert(batch(b).begin(), batch(b).end());
    CHECK(static_cast<int64_t>(needed.size()) == round.needed);

    CHECK(std::is_sorted(round.rows.begin(), round.rows.end()));
    CHECK(round.slots.size() == round.rows.size() && round.after.size() == round.rows.size());
    std::set<uint32_t> gone;
    for (size_t i = 0; i < round.rows.size(); ++i) {
      const uint32_t row = round.rows[i], slot = round.slots[i];
      CHECK(needed.contains(row) && !slot_of.contains(row));
      CHECK(round.after[i] >= last_use_[slot] && round.after[i] <= round.first);
      check_place(slot, row);
      for (const auto& [old, at] : slot_of)
        if (at == slot) gone.insert(old);
    }
    for (const uint32_t old : gone) CHECK(!needed.contains(old));
    for (const uint32_t old : gone) slot_of.erase(old);
    for (size_t i = 0; i < round.rows.size(); ++i) slot_of[round.rows[i]] = round.slots[i];
    for (const uint32_t row : needed) CHECK(slot_of.contains(row));
    for (uint32_t row = 0; row < rows_.count(); ++row) CHECK(plan.holds(row) == slot_of.contains(row));
    std::set<uint32_t> taken;
    for (const auto& [row, slot] : slot_of) CHECK(taken.insert(slot).second);

    CHECK(static_cast<int64_t>(round.batch_slots.size()) == round.last - round.first);
    for (int64_t b = round.first; b < round.last; ++b) {
      const auto& slots = round.batch_slots[static_cast<size_t>(b - round.first)];
      CHECK(slots.size() == batch(b).size());
      for (size_t i = 0; i < slots.size(); ++i) {
        CHECK(slots[i] == slot_of.at(batch(b)[i]));
        last_use_[slots[i]] = b + 1;
      }
    }
  }

  int64_t next() const { return next_; }

  std::map<uint32_t, uint32_t> slot_of;  ///< of the rows in the buffer

 private:
  const Batch& batch(int64_t number) const { return batches_[static_cast<size_t>(number - begin_)]; }

  /// The slot lies in the memory of rows of this size, behind all of smaller numbers.
  void check_place(uint32_t slot, uint32_t row) const {
    int64_t first = 0, offset = 0;
    for (const SlotPool& pool : pools_) {
      if (slot < first + pool.slots) {
        CHECK(pool.row_bytes == row_bytes(rows_, row));
        CHECK(SlotArena(nullptr, pools_).offset(slot) == offset + (slot - first) * pool.row_bytes);
        return;
      }
      first += pool.slots;
      offset += pool.slots * pool.row_bytes;
    }
    CHECK(false);
  }

  const SsdRows& rows_;
  const std::vector<SlotPool>& pools_;
  const std::vector<Batch>& batches_;
  int64_t begin_, next_;
  std::map<uint32_t, int64_t> last_use_;
};

/// Several epochs of one plan; the first ones may be broken off, with rounds whose rows did not arrive.
void test_plans() {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    const SsdRows rows = random_rows(random);
    std::vector<Batch> batches(static_cast<size_t>(1 + below(random, 12)));
    for (Batch& batch : batches) batch = random_batch(random, rows, 15);
    const auto pools = fitting_pools(random, rows, batches, 10);
    LookaheadPlan plan(rows, pools);
    std::map<uint32_t, uint32_t> held;
    for (int epoch = 0; epoch < 4; ++epoch) {
      const int64_t window = 1 + below(random, 4), horizon = below(random, 5);
      const auto broken = static_cast<size_t>(epoch < 3 ? 1 + below(random, 12) : 100);
      plan.set_window(window, horizon);
      Follower follower(rows, pools, batches, plan.first());
      follower.slot_of = held;
      std::vector<Round> rounds;
      auto take = [&] {
        while (plan.ready()) {
          rounds.push_back(plan.next());
          follower.check(plan, rounds.back(), window);
        }
      };
      const size_t count = std::min(batches.size(), broken);
      for (size_t b = 0; b < count; ++b) {
        plan.add(batches[b]);
        take();
        CHECK(plan.waiting() <= window + std::max<int64_t>(horizon, 1));
      }
      if (count == batches.size()) {
        plan.end();
        take();
        CHECK(plan.waiting() == 0 && !plan.ready());
      }
      const int64_t lost = broken < 100 ? below(random, static_cast<int64_t>(rounds.size()) + 1) : 0;
      for (int64_t r = 0; r < lost; ++r) plan.forget(rounds[rounds.size() - 1 - static_cast<size_t>(r)]);
      plan.drop_waiting();
      CHECK(plan.waiting() == 0 && !plan.ready());
      held.clear();
      for (const auto& [row, slot] : follower.slot_of)
        if (plan.holds(row)) held[row] = slot;
      for (int64_t r = 0; r < lost; ++r)
        for (const uint32_t row : rounds[rounds.size() - 1 - static_cast<size_t>(r)].rows) CHECK(!plan.holds(row));
    }
  }
}

/// Reads of all images together bring each row whole, keep to the rules, and come in page order, however few rows may be
/// read at a time.
void test_reads() {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    const SsdRows rows = random_rows(random);
    const Disk disk(rows, seed);
    Batch list = random_batch(random, rows, 60);
    std::sort(list.begin(), list.end());
    const int64_t page_bytes = rows.tables().front().geometry.page_bytes;
    const ReadRules rules{.align = random() % 2 ? 512 : 4096,
                          .unit = random() % 2 ? 1 : page_bytes,
                          .gap = below(random, 3) * 5000,
                          .max_read = 16384};
    std::vector<Bytes> found;
    for (const uint32_t row : list) found.emplace_back(disk.truth[row].size());
    for (uint32_t image = 0; image < disk.image.size(); ++image) {
      RowReads reads(rows, image, rules);
      const Bytes& bytes = disk.image[image];
      RowRead read;
      size_t at = 0, limit = 0;
      int64_t last = -1;
      while (limit < list.size()) {
        limit += 1 + static_cast<size_t>(below(random, static_cast<int64_t>(list.size() - limit)));
        while (reads.next(list, at, limit, read)) {
          const Read& one = read.read;
          CHECK(one.image == image && one.offset % rules.align == 0 && one.bytes % rules.align == 0);
          CHECK(one.offset % rules.unit == 0 && one.need % rules.unit == 0 && one.need <= one.bytes);
          CHECK(one.bytes <= 16384 && one.offset + one.need <= static_cast<int64_t>(bytes.size()));
          CHECK(one.offset >= last && read.begin < read.end && read.end <= limit && at == read.end);
          last = one.offset;
          for (size_t i = read.begin; i < read.end; ++i)
            reads.copy(list[i], one.offset, std::span(bytes).subspan(size_t(one.offset), one.need), found[i].data());
        }
        CHECK(at == limit);
      }
    }
    for (size_t i = 0; i < list.size(); ++i) CHECK(found[i] == disk.truth[list[i]]);
  }
}

}  // namespace

int main() {
  test_plans();
  test_reads();
  std::cout << "test_lookahead: ok\n";
  return 0;
}
