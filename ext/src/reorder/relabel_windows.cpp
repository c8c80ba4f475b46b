// Adjacency under new ids, a chunk of the old entries and a window of the new ones at a time: for graphs that do
// not fit in memory.
//
// Approach:   the old entries pass front to back. Columns are taken in batches: where each goes is looked up, its
//             place in the window is asked for, the sources of the batch are translated in one loop that knows
//             nothing of columns, then the runs are copied to their places. So a core waits for many cache lines
//             at once in each of the three steps that reach for memory at random: starts, source map, window.
//             (Taking the new columns in order and reading the old ones at random is no faster where all is in
//             memory, and reads a disk at random.)
//             A source map much larger than the caches is looked up part by part (partitioned_lookup.hpp), the
//             sources of the whole chunk together.
//             Where the source map is a part of it, so that several parts pass one after the other, entries are
//             taken one by one.
// Memory:     one batch per thread; for a large source map an id per entry of the chunk, lent by the caller.
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

#include "partitioned_lookup.hpp"
#include "run_finder.hpp"

namespace tiering {
namespace {

constexpr int64_t kBlock = int64_t{1} << 17;  ///< entries of the chunk that a thread takes at a time
constexpr int64_t kBatch = 2048;              ///< entries translated together
constexpr int64_t kShort = 16;   ///< runs up to this length are gathered by one block of fixed size
constexpr int64_t kAhead = 128;  ///< places of the source map asked for ahead

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

/// Places the sources of a chunk by parts of the source map; false if an entry is no source.
template <typename Out, typename Index, typename SrcMap, typename Column>
class PartedPlacing {
 public:
  PartedPlacing(std::span<const Index> indices, std::span<const Column> places, const OldEntries& chunk,
                const RelabelWindow& window, int threads)
      : indices_(indices), places_(places), chunk_(chunk), window_(window), threads_(threads) {}

  bool place(std::span<const SrcMap> map, std::span<Out> space) {
    const auto num_src = static_cast<uint64_t>(map.size());
    PartitionedLookup<Out> lookup(static_cast<int64_t>(map.size()), space, threads_);
    std::atomic<bool> good{true};
    walk([&](int t, std::span<const Run> runs) {
      bool inside = true;
      each(runs, [&](const Run& run, int64_t i) {
        const int64_t id = indices_[static_cast<size_t>(run.from + i)];
        inside &= static_cast<uint64_t>(id) < num_src;
        if (inside) lookup.count(t, id);
      });
      if (!inside) good = false;
    });
    if (!good) return false;
    lookup.begin_walk();
    run_team(threads_, [&](int t) {
      typename PartitionedLookup<Out>::Appender appender(lookup, t);
      range<false>(t, [&](std::span<const Run> runs) {
        each(runs, [&](const Run& run, int64_t i) {
          appender.put(static_cast<Out>(indices_[static_cast<size_t>(run.from + i)]));
        });
      });
      appender.finish();
    });
    lookup.look_up(map);
    take(lookup);
    return true;
  }

 private:
  void take(PartitionedLookup<Out>& lookup) {
    auto* const out = static_cast<Out*>(window_.out);
    run_team(threads_, [&](int t) {
      typename PartitionedLookup<Out>::Taker taker(lookup, t);
      range<true>(t, [&](std::span<const Run> runs) {
        each(runs, [&](const Run& run, int64_t i) {
          out[run.to + i] = taker.next(static_cast<Out>(indices_[static_cast<size_t>(run.from + i)]));
        });
      });
    });
  }

  /// Whether every entry has its place in the window: then sources are read without looking at columns.
  bool all_inside() const {
    return window_.first == 0 && window_.end == chunk_.indptr.back() &&
           window_.starts.size() + 1 == chunk_.indptr.size();
  }

  template <typename Body>
  void walk(Body&& body) {
    run_team(threads_, [&](int t) { range<false>(t, [&](std::span<const Run> runs) { body(t, runs); }); });
  }

  /// Calls body(runs) for thread t's range of the chunk; without places, one run if all of it is inside.
  template <bool kPlaces, typename Body>
  void range(int t, Body&& body) {
    const auto [begin, end] = even_cut(chunk_.end - chunk_.first, threads_, t);
    if (!kPlaces && all_inside()) {
      const Run all{begin, end - begin, 0};
      body(std::span<const Run>(&all, 1));
    } else {
      RunFinder<Column, kPlaces> finder(chunk_, places_, window_, sizeof(Out));
      finder.find(chunk_.first + begin, chunk_.first + end, body);
    }
  }

  template <typename Body>
  static void each(std::span<const Run> runs, Body&& body) {
    for (const Run& run : runs)
      for (int64_t i = 0; i < run.count; ++i) body(run, i);
  }

  std::span<const Index> indices_;
  std::span<const Column> places_;
  const OldEntries& chunk_;
  const RelabelWindow& window_;
  int threads_;
};

/// Places the sources of a chunk one batch after the other; false if an entry is no source.
template <typename Out, typename Index, typename SrcMap, typename Column>
bool place_batches(std::span<const Index> indices, std::span<const SrcMap> map,
                   std::span<const Column> places, const OldEntries& chunk, const SourceMap& sources,
                   const RelabelWindow& window, int threads) {
  std::atomic<bool> good{true};
  for_entries(chunk, threads, [&](int64_t begin, int64_t end) {
    RunFinder<Column> finder(chunk, places, window, sizeof(Out));
    Translator<Index, SrcMap, Out> translator(indices, map, sources, static_cast<Out*>(window.out));
    finder.find(begin, end, [&](std::span<const Run> runs) {
      if (!translator.take(runs)) good = false;
    });
  });
  return good;
}

template <typename Out, typename Index, typename SrcMap, typename Column>
void place_ids(std::span<const Index> indices, std::span<const SrcMap> map, std::span<const Column> places,
               const OldEntries& chunk, const SourceMap& sources, const RelabelWindow& window,
               std::span<std::byte> space, int threads) {
  const bool parted = !map.empty() && sources.old_to_new.size == sources.count &&
                      space.size() >= indices.size() * sizeof(Out);
  bool good = true;
  if (parted)
    good = PartedPlacing<Out, Index, SrcMap, Column>(indices, places, chunk, window, threads)
               .place(map, {reinterpret_cast<Out*>(space.data()), indices.size()});
  else
    good = place_batches<Out>(indices, map, places, chunk, sources, window, threads);
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
                      const RelabelWindow& window, std::span<std::byte> space, int threads) {
  check_chunk(chunk);
  indices.visit([&](const auto& ids) {
    sources.old_to_new.visit([&](const auto& map) {
      chunk.dst_old_to_new.visit([&](const auto& places) {
        if (needs_wide_ids(sources.count))
          place_ids<int64_t>(ids, map, places, chunk, sources, window, space, threads);
        else
          place_ids<int32_t>(ids, map, places, chunk, sources, window, space, threads);
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
