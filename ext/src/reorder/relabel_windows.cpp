// Adjacency under new ids, a chunk of the old entries and a window of the new ones at a time: for graphs that do
// not fit in memory.
//
// Approach:   the old entries pass front to back. Columns are taken in batches: where each goes is looked up, its
//             place in the window is asked for, the sources of the batch are translated in one loop that knows
//             nothing of columns, then the runs are copied to their places. So a core waits for many cache lines
//             at once in each of the three steps that reach for memory at random: starts, source map, window.
//             (Taking the new columns in order and reading the old ones at random is no faster where all is in
//             memory, and reads a disk at random.)
//             Where the source map is a part of it, so that several parts pass one after the other, entries are
//             taken one by one.
// Memory:     one batch per thread.
// Parallelism: every entry has a place of its own: the result does not depend on threads, chunks or windows.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <tiering/errors.hpp>
#include <tiering/parallel.hpp>
#include <tiering/reorder.hpp>
#include <tiering/scan_columns.hpp>
#include <utility>

namespace tiering {
namespace {

constexpr int64_t kBlock = int64_t{1} << 17;  ///< entries of the chunk that a thread takes at a time
constexpr int kRuns = 128;                    ///< columns of a batch
constexpr int64_t kBatch = 2048;              ///< entries translated together
constexpr int64_t kShort = 16;   ///< runs up to this length are gathered by one block of fixed size
constexpr int64_t kAhead = 128;  ///< places of the source map asked for ahead

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
  RunFinder(const OldEntries& chunk, std::span<const Column> places, const RelabelWindow& window,
            int64_t item_bytes)
      : chunk_(chunk), places_(places), window_(window), item_bytes_(item_bytes) {}

  /// Calls take(runs) for what entries [begin, end) have, in batches.
  template <typename Take>
  void find(int64_t begin, int64_t end, Take&& take) {
    const auto& indptr = chunk_.indptr;
    column_ = static_cast<size_t>(std::upper_bound(indptr.begin(), indptr.end(), begin) - indptr.begin()) - 1;
    begin_ = begin;
    skipped_ = begin - indptr[column_];
    for (at_ = begin; at_ < end;) {
      const int found = look_up(end);
      if (const size_t kept = resolve(found)) take(std::span<const Run>(runs_, kept));
    }
  }

 private:
  /// Takes columns with entries before `end` that have a place in the window; `to` is their number there for now.
  int look_up(int64_t end) {
    const auto columns = static_cast<uint64_t>(window_.starts.size());
    int found = 0;
    for (; found < kRuns && at_ < end; ++column_) {
      const int64_t stop = std::clamp(chunk_.indptr[column_ + 1], at_, end);
      const int64_t place = places_[column_] - window_.first_column;
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
      run.to =
          window_.starts[static_cast<size_t>(run.to)] - window_.first + (run.from == begin_ ? skipped_ : 0);
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
  int64_t at_ = 0;       ///< next entry
  int64_t begin_ = 0;    ///< first entry
  int64_t skipped_ = 0;  ///< entries of its column that lie before
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

/// Translates the sources of runs and puts them into the window.
template <typename Index, typename SrcMap, typename Out>
class Translator {
 public:
  Translator(std::span<const Index> indices, std::span<const SrcMap> map, const SourceMap& sources, Out* out)
      : indices_(indices), map_(map), sources_(sources), out_(out) {}

  /// False if an entry is no source; nothing is written for its batch.
  bool take(std::span<const Run> runs) {
    return sources_.old_to_new.size == sources_.count ? take_all(runs) : take_part(runs);
  }

 private:
  /// Takes the entries whose source is in a part of the map.
  bool take_part(std::span<const Run> runs) const {
    bool good = true;
    for (const Run& run : runs)
      for (int64_t i = 0; i < run.count; ++i) {
        const int64_t u = indices_[static_cast<size_t>(run.from + i)];
        good &= static_cast<uint64_t>(u) < static_cast<uint64_t>(sources_.count);
        const auto k = static_cast<uint64_t>(u) - static_cast<uint64_t>(sources_.first);
        if (k < map_.size()) out_[run.to + i] = static_cast<Out>(map_[k]);
      }
    return good;
  }

  bool take_all(std::span<const Run> runs) {
    bool good = true;
    size_t done = 0;
    for (size_t i = 0; i < runs.size(); ++i) {
      const Run& run = runs[i];
      if (filled_ + run.count > kBatch) {
        good &= flush(runs.subspan(done, i - done));
        done = i;
      }
      if (run.count > kBatch) {
        good &= translate(indices_.data() + run.from, run.count, out_ + run.to);
        done = i + 1;
      } else {
        gather(run);
      }
    }
    return flush(runs.subspan(done)) && good;
  }

  /// Adds a run to the batch; a short one with what follows, which the next will overwrite.
  void gather(const Run& run) {
    const bool block = run.count <= kShort && run.from + kShort <= static_cast<int64_t>(indices_.size());
    if (block)
      std::memcpy(batch_ + filled_, indices_.data() + run.from, kShort * sizeof(Index));
    else
      std::memcpy(batch_ + filled_, indices_.data() + run.from,
                  static_cast<size_t>(run.count) * sizeof(Index));
    filled_ += run.count;
  }

  /// Copies the batch, which holds `runs`, to its places under the new ids.
  bool flush(std::span<const Run> runs) {
    const bool good = translate(batch_, std::exchange(filled_, 0), translated_);
    const Out* from = translated_;
    for (const Run& run : runs) {
      if (good) copy_run(out_ + run.to, from, run.count);
      from += run.count;
    }
    return good;
  }

  bool translate(const Index* from, int64_t count, Out* to) const {
    const SrcMap* const map = map_.data();
    bool good = true;
    for (int64_t i = 0; i < count; ++i) good &= static_cast<uint64_t>(int64_t{from[i]}) < map_.size();
    if (!good) return false;
    int64_t i = 0;
    for (; i + kAhead < count; ++i) {
      __builtin_prefetch(map + from[i + kAhead]);
      to[i] = static_cast<Out>(map[from[i]]);
    }
    for (; i < count; ++i) to[i] = static_cast<Out>(map[from[i]]);
    return true;
  }

  std::span<const Index> indices_;
  std::span<const SrcMap> map_;
  const SourceMap& sources_;
  Out* out_;
  Index batch_[kBatch + kShort];
  Out translated_[kBatch];
  int64_t filled_ = 0;
};

/// Calls body(begin, end) for blocks of the chunk's entries.
template <typename Body>
void for_entries(const OldEntries& chunk, int threads, Body&& body) {
  const int64_t size = chunk.end - chunk.first;
  for_blocks(threads, (size + kBlock - 1) / kBlock, [&](int64_t block) {
    const int64_t begin = chunk.first + block * kBlock;
    body(begin, std::min(chunk.end, begin + kBlock));
  });
}

template <typename Out, typename Index, typename SrcMap, typename Column>
void place_ids(std::span<const Index> indices, std::span<const SrcMap> map, std::span<const Column> places,
               const OldEntries& chunk, const SourceMap& sources, const RelabelWindow& window, int threads) {
  std::atomic<bool> good{true};
  for_entries(chunk, threads, [&](int64_t begin, int64_t end) {
    RunFinder<Column> finder(chunk, places, window, sizeof(Out));
    Translator<Index, SrcMap, Out> translator(indices, map, sources, static_cast<Out*>(window.out));
    finder.find(begin, end, [&](std::span<const Run> runs) {
      if (!translator.take(runs)) good = false;
    });
  });
  if (good) return;
  for (size_t k = 0; k < indices.size(); ++k)
    if (static_cast<uint64_t>(int64_t{indices[k]}) >= static_cast<uint64_t>(sources.count))
      index_out_of_range(chunk.first + static_cast<int64_t>(k), indices[k], sources.count);
}

template <typename T>
void place_items(const void* values, const OldEntries& chunk, const RelabelWindow& window, int threads) {
  const auto* const from = static_cast<const T*>(values);
  auto* const out = static_cast<T*>(window.out);
  chunk.dst_old_to_new.visit([&]<typename Column>(std::span<const Column> places) {
    for_entries(chunk, threads, [&](int64_t begin, int64_t end) {
      RunFinder<Column>(chunk, places, window, sizeof(T)).find(begin, end, [&](std::span<const Run> runs) {
        for (const Run& run : runs) copy_run(out + run.to, from + run.from, run.count);
      });
    });
  });
}

void place_bytes(const void* values, int64_t item_bytes, const OldEntries& chunk, const RelabelWindow& window,
                 int threads) {
  const auto* const from = static_cast<const char*>(values);
  auto* const out = static_cast<char*>(window.out);
  chunk.dst_old_to_new.visit([&]<typename Column>(std::span<const Column> places) {
    for_entries(chunk, threads, [&](int64_t begin, int64_t end) {
      RunFinder<Column>(chunk, places, window, item_bytes).find(begin, end, [&](std::span<const Run> runs) {
        for (const Run& run : runs)
          std::memcpy(out + run.to * item_bytes, from + run.from * item_bytes,
                      static_cast<size_t>(run.count * item_bytes));
      });
    });
  });
}

void check_chunk(const OldEntries& chunk) {
  const auto columns = static_cast<int64_t>(chunk.indptr.size()) - 1;
  TIERING_EXPECT(columns >= 0 && chunk.indptr[0] == 0, "indptr: expected offsets that begin with 0");
  TIERING_EXPECT(chunk.dst_old_to_new.size == columns,
                 "dst_old_to_new has " + std::to_string(chunk.dst_old_to_new.size) + " entries for " +
                     std::to_string(columns) + " columns");
  TIERING_EXPECT(0 <= chunk.first && chunk.end <= chunk.indptr.back(),
                 "the chunk ends at entry " + std::to_string(chunk.end) + ", but indptr at " +
                     std::to_string(chunk.indptr.back()));
}

}  // namespace

void place_relabelled(const IdSpan& indices, const OldEntries& chunk, const SourceMap& sources,
                      const RelabelWindow& window, int threads) {
  check_chunk(chunk);
  indices.visit([&](const auto& ids) {
    sources.old_to_new.visit([&](const auto& map) {
      chunk.dst_old_to_new.visit([&](const auto& places) {
        if (needs_wide_ids(sources.count))
          place_ids<int64_t>(ids, map, places, chunk, sources, window, threads);
        else
          place_ids<int32_t>(ids, map, places, chunk, sources, window, threads);
      });
    });
  });
}

void place_relabelled_data(const void* values, int64_t item_bytes, const OldEntries& chunk,
                           const RelabelWindow& window, int threads) {
  check_chunk(chunk);
  if (item_bytes == 4)
    place_items<uint32_t>(values, chunk, window, threads);
  else if (item_bytes == 8)
    place_items<uint64_t>(values, chunk, window, threads);
  else
    place_bytes(values, item_bytes, chunk, window, threads);
}

}  // namespace tiering
