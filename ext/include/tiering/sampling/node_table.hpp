// The unique nodes of one batch and one type: a list in order of discovery, and a hash table from id to place in it,
// whose size follows the batch, not the graph. One slot is one 64-bit word: low 32 bits of the id above, local id
// below; ids from 2^32 on are confirmed by the list. Linear probing, at most a quarter full (measured: 4 % faster than
// half full).
#pragma once

#include <cstring>

#include "tiering/buffer.hpp"
#include "tiering/sampling/growing_array.hpp"
#include "tiering/sampling/random.hpp"

namespace tiering {

class NodeTable {
 public:
  /// Nodes found so far, in order of discovery.
  const GrowingArray<int64_t>& nodes() const { return nodes_; }
  int64_t size() const { return nodes_.size(); }

  /// Empties the table for a batch over ids in [0, num_nodes); keeps memory, follows the size of the last batch.
  void start(int64_t num_nodes) {
    confirm_ = num_nodes > (int64_t{1} << 32);
    expected_ = nodes_.size() > 0 ? nodes_.size() : expected_;
    nodes_.set_size(0);
    nodes_.make_room(expected_ + expected_ / 8);
    set_slots(slots_for(expected_ + expected_ / 8));
  }

  /// Makes insert() safe for `extra` more calls.
  void make_room(int64_t extra) {
    nodes_.make_room(extra + 1);  // insert() writes one past the end
    if (slots_for(size() + extra) <= num_slots()) return;
    set_slots(slots_for(size() + extra));
    for (int64_t local = 0; local < size(); ++local) place(nodes_[local], local);
  }

  void prefetch(int64_t id) const { __builtin_prefetch(slots_.data() + home(id), 1); }

  /// Local id of `id`, which is appended to the list if it is new.
  /// Free of branches on "new or known" (a coin toss that no predictor learns): both outcomes store.
  int32_t insert(int64_t id) {
    uint64_t* const slots = slots_.data();
    const uint64_t tag = tag_of(id);
    uint64_t at = home(id), slot = slots[at];
    while (slot != kEmpty && !matches(slot, tag, id)) slot = slots[at = (at + 1) & mask_];
    const int64_t count = nodes_.size();
    const bool is_new = slot == kEmpty;
    const uint64_t local = is_new ? static_cast<uint64_t>(count) : slot & kLocalBits;
    slots[at] = tag << 32 | local;
    nodes_[count] = id;
    nodes_.set_size(count + is_new);
    return static_cast<int32_t>(local);
  }

  /// Local id of `id`, -1 where it is not known.
  int32_t find(int64_t id) const {
    const uint64_t* const slots = slots_.data();
    const uint64_t tag = tag_of(id);
    uint64_t at = home(id);
    while (slots[at] != kEmpty && !matches(slots[at], tag, id)) at = (at + 1) & mask_;
    return slots[at] == kEmpty ? -1 : static_cast<int32_t>(slots[at] & kLocalBits);
  }

  /// Hands the list over to the caller; start() must come next.
  GrowingArray<int64_t> take_nodes() {
    expected_ = nodes_.size();
    GrowingArray<int64_t> taken = std::move(nodes_);
    nodes_ = GrowingArray<int64_t>();
    return taken;
  }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};  // no local id is 2^32 - 1
  static constexpr uint64_t kLocalBits = 0xffffffffULL;
  static constexpr int kMinBits = 10;

  static uint64_t tag_of(int64_t id) { return static_cast<uint64_t>(id) & kLocalBits; }
  uint64_t home(int64_t id) const { return (static_cast<uint64_t>(id) * kGolden) >> shift_; }
  bool matches(uint64_t slot, uint64_t tag, int64_t id) const {
    return slot >> 32 == tag && (!confirm_ || nodes_[static_cast<int64_t>(slot & kLocalBits)] == id);
  }
  int64_t num_slots() const { return static_cast<int64_t>(mask_) + 1; }
  static int64_t slots_for(int64_t count) {
    int64_t slots = int64_t{1} << kMinBits;
    while (slots < 4 * count) slots *= 2;
    return slots;
  }
  void set_slots(int64_t slots) {
    if (slots > slots_.size()) slots_ = Buffer<uint64_t>(slots);
    std::memset(slots_.data(), 0xff, static_cast<size_t>(slots) * sizeof(uint64_t));
    mask_ = static_cast<uint64_t>(slots) - 1;
    shift_ = 64 - __builtin_ctzll(static_cast<uint64_t>(slots));
  }
  void place(int64_t id, int64_t local) {
    uint64_t at = home(id);
    while (slots_[static_cast<int64_t>(at)] != kEmpty) at = (at + 1) & mask_;
    slots_[static_cast<int64_t>(at)] = tag_of(id) << 32 | static_cast<uint64_t>(local);
  }

  GrowingArray<int64_t> nodes_;
  Buffer<uint64_t> slots_;
  uint64_t mask_ = 0;
  int shift_ = 63;
  bool confirm_ = false;
  int64_t expected_ = 0;
};

}  // namespace tiering
