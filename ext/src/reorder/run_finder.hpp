// Which parts of old columns go where in a window of the relabelled graph.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <tiering/errors.hpp>
#include <tiering/reorder.hpp>

namespace tiering {

/// A part of an old column whose entries go to consecutive places of the window.
struct Run {
  int64_t from;  ///< entry of the chunk
  int64_t count;
  int64_t to;  ///< entry of the window
};

/// Finds the parts of old columns that go to the window.
template <typename Column>
class RunFinder {
 public:
  RunFinder(const OldEntries& chunk, std::span<const Column> places, const RelabelWindow& window, int64_t item_bytes)
      : chunk_(chunk), places_(places), window_(window), item_bytes_(item_bytes) {}

  /// Calls take(runs) for what entries [begin, end) have, in batches.
  template <typename Take>
  void find(int64_t begin, int64_t end, Take&& take) {
    const auto& indptr = chunk_.indptr;
    column_ = static_cast<size_t>(std::upper_bound(indptr.begin(), indptr.end(), begin) - indptr.begin()) - 1;
    begin_ = begin;
    check(0 <= indptr[column_] && indptr[column_] <= begin);
    skipped_ = begin - indptr[column_];
    for (at_ = begin; at_ < end;) {
      const int found = look_up(end);
      if (const size_t kept = resolve(found)) take(std::span<const Run>(runs_, kept));
    }
  }

 private:
  /// Offsets that are not in order would lead outside.
  void check(bool in_order) const {
    if (!in_order) [[unlikely]]
      refuse_input("indptr is not in order at ", column_);
  }

  /// Takes columns with entries before `end` that have a place in the window; `to` is their number there for now.
  int look_up(int64_t end) {
    const auto columns = static_cast<uint64_t>(window_.starts.size());
    int found = 0;
    for (; found < kRuns && at_ < end; ++column_) {
      const int64_t next = chunk_.indptr[column_ + 1], stop = std::min(next, end);
      check(at_ <= next);
      const int64_t place = wrapped_difference(places_[column_], window_.first_column);
      const bool inside = static_cast<uint64_t>(place) < columns;
      runs_[found] = {at_, stop - at_, inside ? place : 0};
      __builtin_prefetch(window_.starts.data() + runs_[found].to);
      found += inside && stop > at_;  // no branch: half the columns may be empty or elsewhere
      at_ = stop;
    }
    return found;
  }

  /// Turns numbers of columns into places, cuts off what lies outside the window, asks for the memory.
  size_t resolve(int found) {
    const int64_t size = window_.end - window_.first;
    size_t kept = 0;
    for (int i = 0; i < found; ++i) {
      Run run = runs_[i];
      run.to = window_.starts[static_cast<size_t>(run.to)] - window_.first + (run.from == begin_ ? skipped_ : 0);
      const int64_t before = std::max<int64_t>(0, -run.to);
      run.from += before - chunk_.first;
      run.to += before;
      run.count = std::min(run.count - before, size - run.to);
      runs_[kept] = run;
      if (run.count <= 0) continue;
      ++kept;
      const char* const place = static_cast<const char*>(window_.out) + run.to * item_bytes_;
      __builtin_prefetch(place, 1);
      __builtin_prefetch(place + std::min<int64_t>(64, run.count * item_bytes_ - 1), 1);
    }
    return kept;
  }

  const OldEntries& chunk_;
  std::span<const Column> places_;
  const RelabelWindow& window_;
  int64_t item_bytes_;
  size_t column_ = 0;
  int64_t at_ = 0;                   ///< next entry
  int64_t begin_ = 0;                ///< first entry
  int64_t skipped_ = 0;              ///< entries of its column that lie before
  static constexpr int kRuns = 128;  ///< columns of a batch
  Run runs_[kRuns];
};

}  // namespace tiering
