// Offsets of an adjacency under new ids: the degrees go to their new columns, then a prefix sum.
// Its entries, a chunk of the old entries and a window of the new ones at a time: for graphs that do not
// fit in memory. Parts of old columns are copied to where their columns go, under old ids; then the window is read
// front to back and every id replaced, places of the source map asked for well ahead. (Looking sources up while they
// are copied saves a pass, but is 5 to 20 % slower.) A source map that does not fit in memory renames the window part
// after part: what has its new id waits as the complement of it. Every entry has a place of its own: threads, chunks
// and windows do not change the result.
#include <limits>
#include <tiering/parallel.hpp>
#include <tiering/reorder.hpp>
#include <tiering/scan_columns.hpp>

namespace tiering {
namespace {

/// degrees[places[v]] = degree of the old column v. Relaxed atomic stores, plain moves on every machine we build
/// for: no two columns have one place, or the sum will tell.
template <typename Id>
void scatter_degrees(std::span<const int64_t> indptr, std::span<const Id> places, Buffer<int64_t>& degrees,
                     int threads) {
  const auto n = static_cast<int64_t>(places.size());
  for_cuts(threads, n, [&](int64_t begin, int64_t end) {
    for (auto v = static_cast<size_t>(begin); v < static_cast<size_t>(end); ++v) {
      TIERING_EXPECT(0 <= indptr[v] && indptr[v] <= indptr[v + 1], "indptr decreases from ", indptr[v], " at ", v,
                     " to ", indptr[v + 1], " at ", v + 1);
      const int64_t place = places[v];
      TIERING_EXPECT(static_cast<uint64_t>(place) < static_cast<uint64_t>(n), "dst_old_to_new[", v, "] is ", place,
                     ", outside 0..", n - 1);
      std::atomic_ref<int64_t>(degrees[place]).store(indptr[v + 1] - indptr[v], std::memory_order_relaxed);
    }
  });
}

/// Turns n degrees and a free place behind them into offsets.
void sum_up(Buffer<int64_t>& values, int threads) {
  const int64_t n = values.size() - 1;
  std::vector<int64_t> sums(static_cast<size_t>(threads) + 1, 0);
  for_cuts(threads, n, [&](int64_t begin, int64_t end, int t) {
    int64_t sum = 0;
    for (int64_t v = begin; v < end; ++v) sum += values[v];
    sums[static_cast<size_t>(t) + 1] = sum;
  });
  for (size_t t = 1; t < sums.size(); ++t) sums[t] += sums[t - 1];
  for_cuts(threads, n, [&](int64_t begin, int64_t end, int t) {
    int64_t next = sums[t];
    for (int64_t v = begin; v < end; ++v) next += std::exchange(values[v], next);
  });
  values[n] = sums.back();
}

constexpr int64_t kBlock = int64_t{1} << 17;  ///< entries that a thread takes at a time
constexpr int64_t kPlacesAhead = 48;          ///< places of the source map asked for ahead

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
      run.to = window_.starts[run.to] - window_.first + (run.from == begin_ ? skipped_ : 0);
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

template <size_t kCount, typename T>
void copy_ends(T* to, const T* from, int64_t count) {
  std::memcpy(to, from, kCount * sizeof(T));
  std::memcpy(to + count - kCount, from + count - kCount, kCount * sizeof(T));
}

/// Copies a run; short ones as two blocks that may overlap.
template <typename T>
void copy_run(T* to, const T* from, int64_t count) {
  if (count > 16)
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(T));
  else if (count >= 8)
    copy_ends<8>(to, from, count);
  else if (count >= 4)
    copy_ends<4>(to, from, count);
  else if (count >= 2)
    copy_ends<2>(to, from, count);
  else
    *to = *from;
}

template <typename To, typename From>
void copy_run(To* to, const From* from, int64_t count) {
  std::transform(from, from + count, to, [](From value) { return static_cast<To>(value); });
}

/// Calls copy(run) for every run of the chunk's entries, and before(begin, end) for each block of them.
template <typename Before, typename Copy>
void place_runs(const OldEntries& chunk, const RelabelWindow& window, int64_t item_bytes, int threads, Before&& before,
                Copy&& copy) {
  const auto columns = static_cast<int64_t>(chunk.indptr.size()) - 1;
  TIERING_EXPECT(columns >= 0 && chunk.indptr[0] == 0, "indptr: expected offsets that begin with 0");
  TIERING_EXPECT(chunk.dst_old_to_new.size == columns, "dst_old_to_new has ", chunk.dst_old_to_new.size,
                 " entries for ", columns, " columns");
  TIERING_EXPECT(0 <= chunk.first && chunk.end <= chunk.indptr.back(), "the chunk ends at entry ", chunk.end,
                 ", but indptr at ", chunk.indptr.back());
  chunk.dst_old_to_new.visit([&]<typename Column>(std::span<const Column> places) {
    for_ranges(threads, chunk.first, chunk.end, kBlock, [&](int64_t begin, int64_t end) {
      before(begin - chunk.first, end - chunk.first);
      RunFinder<Column>(chunk, places, window, item_bytes).find(begin, end, [&](std::span<const Run> runs) {
        for (const Run& run : runs) copy(run);
      });
    });
  });
}

/// Whether all ids are in [0, count); the sign bits of an id and of what is left above it tell.
template <typename Id>
bool all_below(const Id* ids, int64_t begin, int64_t end, int64_t count) {
  using Bits = std::make_unsigned_t<Id>;
  const auto largest = static_cast<Bits>(std::min<int64_t>(count - 1, std::numeric_limits<Id>::max()));
  Bits signs = 0;
  for (int64_t i = begin; i < end; ++i) signs |= static_cast<Bits>(ids[i]) | (largest - static_cast<Bits>(ids[i]));
  return count > 0 ? static_cast<Id>(signs) >= 0 : begin == end;
}

template <typename Out, typename Index>
void place_ids(std::span<const Index> indices, int64_t num_src, const OldEntries& chunk, const RelabelWindow& window,
               int threads) {
  const Index* const from = indices.data();
  auto* const out = static_cast<Out*>(window.out);
  std::atomic<bool> good{true};
  place_runs(
      chunk, window, sizeof(Out), threads,
      [&](int64_t begin, int64_t end) {
        if (!all_below(from, begin, end, num_src)) good = false;
      },
      [&](const Run& run) { copy_run(out + run.to, from + run.from, run.count); });
  if (good) return;
  for (size_t k = 0; k < indices.size(); ++k)
    if (static_cast<uint64_t>(int64_t{indices[k]}) >= static_cast<uint64_t>(num_src))
      index_out_of_range(chunk.first + static_cast<int64_t>(k), indices[k], num_src);
}

template <typename Id, typename SrcMap>
void rename(Id* ids, int64_t begin, int64_t end, const SrcMap* map, int64_t num_src) {
  TIERING_EXPECT(all_below(ids, begin, end, num_src), "the window has an entry that is not a source");
  int64_t i = begin;
  for (; i + kPlacesAhead < end; ++i) {
    __builtin_prefetch(map + ids[i + kPlacesAhead]);
    ids[i] = static_cast<Id>(map[ids[i]]);
  }
  for (; i < end; ++i) ids[i] = static_cast<Id>(map[ids[i]]);
}

/// By a part of it: complements are new ids already, and turned back by the last part.
template <typename Id, typename SrcMap>
void rename_part(Id* ids, int64_t begin, int64_t end, std::span<const SrcMap> map, const SourceMap& sources) {
  const bool last = sources.first + sources.old_to_new.size == sources.count;
  for (int64_t i = begin; i < end; ++i) {
    const Id id = ids[i];
    const auto k = static_cast<uint64_t>(int64_t{id}) - static_cast<uint64_t>(sources.first);
    const auto renamed = id < 0 ? id : k < map.size() ? static_cast<Id>(~map[k]) : id;
    TIERING_EXPECT(!last || renamed < 0, "the window has an entry that is not a source");
    ids[i] = last ? static_cast<Id>(~renamed) : renamed;
  }
}

}  // namespace

Buffer<int64_t> relabel_indptr(std::span<const int64_t> indptr, const IdSpan& dst_old_to_new, int threads) {
  const auto n = static_cast<int64_t>(indptr.size()) - 1;
  TIERING_EXPECT(n >= 0 && indptr[0] == 0, "indptr: expected offsets that begin with 0");
  TIERING_EXPECT(dst_old_to_new.size == n, "dst_old_to_new has ", dst_old_to_new.size, " entries for ", n, " columns");
  Buffer<int64_t> result(n + 1);
  for_cuts(threads, n + 1,
           [&](int64_t begin, int64_t end) { std::fill(result.data() + begin, result.data() + end, 0); });
  dst_old_to_new.visit([&](const auto& places) { scatter_degrees(indptr, places, result, threads); });
  sum_up(result, threads);
  TIERING_EXPECT(result[n] == indptr.back(), "dst_old_to_new is not a permutation: its columns have ", result[n],
                 " entries, the graph has ", indptr.back());
  return result;
}

void place_indices(const IdSpan& indices, int64_t num_src, const OldEntries& chunk, const RelabelWindow& window,
                   int threads) {
  indices.visit([&](const auto& ids) {
    if (needs_wide_ids(num_src))
      place_ids<int64_t>(ids, num_src, chunk, window, threads);
    else
      place_ids<int32_t>(ids, num_src, chunk, window, threads);
  });
}

void place_values(const void* values, int64_t item_bytes, const OldEntries& chunk, const RelabelWindow& window,
                  int threads) {
  auto place = [&]<typename T>(T, auto&& copy) {  // copy(to, from, count) copies so many values
    const auto step = item_bytes / static_cast<int64_t>(sizeof(T));
    const auto* const from = static_cast<const T*>(values);
    auto* const out = static_cast<T*>(window.out);
    place_runs(
        chunk, window, item_bytes, threads, [](int64_t, int64_t) {},
        [&](const Run& run) { copy(out + run.to * step, from + run.from * step, run.count); });
  };
  auto copy_items = [](auto* to, const auto* from, int64_t count) { copy_run(to, from, count); };
  if (item_bytes == 4)
    place(uint32_t{}, copy_items);
  else if (item_bytes == 8)
    place(uint64_t{}, copy_items);
  else
    place(char{}, [&](char* to, const char* from, int64_t count) {
      std::memcpy(to, from, static_cast<size_t>(count * item_bytes));
    });
}

void rename_sources(void* entries, int64_t count, const SourceMap& sources, int threads) {
  const bool whole = sources.old_to_new.size == sources.count;
  auto run = [&](auto* ids) {
    sources.old_to_new.visit([&](const auto& map) {
      for_ranges(threads, 0, count, kBlock, [&](int64_t begin, int64_t end) {
        if (whole)
          rename(ids, begin, end, map.data(), sources.count);
        else
          rename_part(ids, begin, end, map, sources);
      });
    });
  };
  if (needs_wide_ids(sources.count))
    run(static_cast<int64_t*>(entries));
  else
    run(static_cast<int32_t*>(entries));
}

}  // namespace tiering
