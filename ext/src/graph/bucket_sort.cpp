// Edge list to CSC when the edges do not fit in memory: a chunk of them is counted and partitioned into buckets of
// consecutive columns, a record of 8 bytes per edge (16 with 64-bit ids) and each value apart. What a bucket has of a
// chunk, a run, lies together. A bucket, the sequence of its runs, is then sorted where it fits the private cache: a
// counting sort leaves in each record where it went, so that the values follow. Each edge is read once and written
// twice; runs are in input order, so every column has its edges in input order, for any number of threads. Memory: 4
// bytes per column of a bucket and thread.
#include <numeric>
#include <tiering/graph.hpp>
#include <tiering/line_writer.hpp>
#include <tiering/scan_columns.hpp>

namespace tiering {
namespace {

[[noreturn, gnu::cold, gnu::noinline]] void edge_out_of_range(int64_t edge, const char* side, int64_t id,
                                                              int64_t count) {
  const std::string bounds = count ? "outside 0.." + std::to_string(count - 1) : "impossible: there are no nodes";
  refuse_input("edge ", edge, ": ", side, " id ", id, " is ", bounds);
}

bool in_range(int64_t id, int64_t count) { return static_cast<uint64_t>(id) < static_cast<uint64_t>(count); }

template <typename Id>
struct Scattered {
  uint32_t local;  ///< column - first column of the bucket; in the end, place among the records of the bucket
  Id id;
};

/// A thread's part of a chunk, and where its items go.
struct Share {
  int64_t begin, end;  ///< edges
  int64_t first;       ///< items of buckets below are dropped
  int shift;
  std::span<const int64_t> places;  ///< of the thread's first item of each bucket, in items
  std::span<const int64_t> counts;  ///< of its items of each bucket

  std::vector<int64_t> kept() const {
    std::vector<int64_t> kept(counts.begin(), counts.end());
    std::fill_n(kept.begin(), first, 0);
    return kept;
  }
};

/// Sends item(k, destination) of every edge k to its bucket.
template <typename Item, typename Dst, typename ItemOf>
void send(const Dst& dst, const Share& share, std::span<std::byte> out, ItemOf&& item) {
  std::vector<Item*> begins;
  for (const int64_t place : share.places) begins.push_back(reinterpret_cast<Item*>(out.data()) + place);
  LineWriter<Item> writer(std::move(begins), share.kept());
  const uint64_t num_buckets = share.places.size();
  const int64_t first = share.first;
  const int shift = share.shift;
  for (int64_t k = share.begin; k < share.end; ++k) {
    const int64_t column = dst[k], bucket = column >> shift;
    if (static_cast<uint64_t>(bucket) >= num_buckets) changed_meanwhile();
    const Item value = item(k, column);
    if (bucket >= first) writer.put(static_cast<size_t>(bucket), value);
  }
  writer.finish();
}

/// The same for items of any size.
template <typename Dst>
void send_bytes(const Dst& dst, const Share& share, std::span<std::byte> out, const EdgeValues& values) {
  std::vector<std::byte*> next;
  for (const int64_t place : share.places) next.push_back(out.data() + place * values.item_bytes);
  std::vector<int64_t> left = share.kept();
  for (int64_t k = share.begin; k < share.end; ++k) {
    const int64_t bucket = dst[k] >> share.shift;
    if (bucket >= 0 && bucket < share.first) continue;
    if (static_cast<size_t>(bucket) >= left.size() || left[bucket]-- == 0) changed_meanwhile();
    std::byte*& to = next[bucket];
    std::memcpy(to, values.data + k * values.stride_bytes, static_cast<size_t>(values.item_bytes));
    to += values.item_bytes;
  }
}

template <typename Item, typename Dst>
void send_items(const Dst& dst, const Share& share, std::span<std::byte> out, const EdgeValues& values) {
  send<Item>(dst, share, out, [&](int64_t k, int64_t) {
    Item item;
    std::memcpy(&item, values.data + k * values.stride_bytes, sizeof(Item));
    return item;
  });
}

template <typename Dst>
void send_values(const Dst& dst, const Share& share, std::span<std::byte> out, const EdgeValues& values,
                 int64_t first_edge) {
  if (values.data == nullptr)
    send<int64_t>(dst, share, out, [=](int64_t k, int64_t) { return first_edge + k; });
  else if (values.item_bytes == 4)
    send_items<uint32_t>(dst, share, out, values);
  else if (values.item_bytes == 8)
    send_items<uint64_t>(dst, share, out, values);
  else
    send_bytes(dst, share, out, values);
}

template <typename Id, typename Dst>
void send_records(const EdgeChunk& chunk, const Dst& dst, int64_t num_src, const Share& share,
                  std::span<std::byte> out) {
  const auto mask = static_cast<uint32_t>((int64_t{1} << share.shift) - 1);
  chunk.src.visit([&](const auto& src) {
    send<Scattered<Id>>(dst, share, out, [&, src, num_src, mask](int64_t k, int64_t column) {
      const int64_t u = src[k];
      if (!in_range(u, num_src)) edge_out_of_range(chunk.first_edge + k, "source", u, num_src);
      return Scattered<Id>{static_cast<uint32_t>(column) & mask, static_cast<Id>(u)};
    });
  });
}

/// Where each thread's items of each bucket begin, in items: bucket after bucket, in them thread after thread; and how
/// many items all are.
std::pair<std::vector<int64_t>, int64_t> item_places(std::span<const int64_t> counts, int64_t first, int threads) {
  const auto num_buckets = counts.size() / static_cast<size_t>(threads);
  std::vector<int64_t> places(counts.size(), 0);
  int64_t next = 0;
  for (size_t b = static_cast<size_t>(first); b < num_buckets; ++b)
    for (size_t t = 0; t < static_cast<size_t>(threads); ++t) {
      places[t * num_buckets + b] = next;
      next += counts[t * num_buckets + b];
    }
  return {std::move(places), next};
}

/// The part of a run that belongs to a bucket.
template <typename Id>
struct Piece {
  std::span<Scattered<Id>> records;
  size_t run;
  int64_t before;  ///< records of the run before these
};

/// Counting sort of one bucket: fills its part of indptr and of the ids, and leaves in each record where it went.
template <typename Id>
void sort_records(std::span<const Piece<Id>> pieces, bool note, int64_t first_entry, std::span<int64_t> indptr, Id* out,
                  std::vector<uint32_t>& cursors) {
  cursors.assign(indptr.size(), 0);
  for (const auto& piece : pieces)
    for (const auto& record : piece.records) {
      if (record.local >= cursors.size()) changed_meanwhile();
      ++cursors[record.local];
    }
  uint32_t next = 0;
  for (size_t v = 0; v < indptr.size(); ++v) {
    indptr[v] = first_entry + next;
    next += std::exchange(cursors[v], next);
  }
  for (const auto& piece : pieces) {
    if (note)
      for (auto& record : piece.records) out[record.local = cursors[record.local]++] = record.id;
    else
      for (const auto& record : piece.records) out[cursors[record.local]++] = record.id;
  }
}

/// Puts values where sort_records has put their records.
template <typename Id>
void place_values(std::span<Scattered<Id>> records, const std::byte* values, int64_t item_bytes, std::byte* out) {
  with_item_bytes(item_bytes, [=](auto size) {
    for (size_t k = 0; k < records.size(); ++k) std::memcpy(out + records[k].local * size, values + k * size, size);
  });
}

/// The pieces of every bucket, run after run, and how many records come before each bucket.
template <typename Id>
std::pair<std::vector<Piece<Id>>, std::vector<int64_t>> cut_runs(const ScatteredRuns& runs, const BucketGrid& grid) {
  const auto num_buckets = static_cast<size_t>(grid.num_buckets()), num_runs = runs.counts.size() / num_buckets;
  const size_t num_parts = runs.item_bytes.size() + 1;
  std::vector<Piece<Id>> pieces(num_buckets * num_runs);
  std::vector<int64_t> offsets(num_buckets + 1, 0);
  for (size_t c = 0; c < num_runs; ++c) {
    int64_t before = 0;
    auto* const records = reinterpret_cast<Scattered<Id>*>(runs.memory.data() + runs.places[c * num_parts]);
    for (size_t b = 0; b < num_buckets; ++b) {
      const int64_t count = runs.counts[c * num_buckets + b];
      TIERING_EXPECT(count >= 0, "a run has fewer than no records");
      pieces[b * num_runs + c] = {{records + before, static_cast<size_t>(count)}, c, before};
      before += count;
      offsets[b + 1] += count;
    }
    for (size_t p = 0; p < num_parts; ++p) {
      const int64_t item = p == 0 ? static_cast<int64_t>(sizeof(Scattered<Id>)) : runs.item_bytes[p - 1],
                    place = runs.places[c * num_parts + p],
                    alignment = p == 0          ? alignof(Scattered<Id>)
                                : item % 8 == 0 ? 8
                                : item % 4 == 0 ? 4
                                                : 1;
      TIERING_EXPECT(
          place >= 0 && place % alignment == 0 && before * item <= static_cast<int64_t>(runs.memory.size()) - place,
          "a run does not lie in the memory, or is not aligned");
    }
  }
  for (size_t b = 0; b < num_buckets; ++b)
    TIERING_EXPECT(offsets[b + 1] < int64_t{1} << 32, "a bucket has 2^32 edges or more");
  std::partial_sum(offsets.begin(), offsets.end(), offsets.begin());
  return {std::move(pieces), std::move(offsets)};
}

template <typename Id>
void sort_all(const ScatteredRuns& runs, const BucketGrid& grid, int64_t first_entry, std::span<int64_t> indptr,
              std::span<const std::span<std::byte>> outs, int threads) {
  const auto [pieces, offsets] = cut_runs<Id>(runs, grid);
  const size_t num_runs = pieces.size() / static_cast<size_t>(grid.num_buckets()), num_values = runs.item_bytes.size();
  TIERING_EXPECT(outs.size() == num_values + 1, "one output for the ids and one for each value is needed");
  for (size_t p = 0; p < outs.size(); ++p)
    TIERING_EXPECT(static_cast<int64_t>(outs[p].size()) ==
                       offsets.back() * (p == 0 ? static_cast<int64_t>(sizeof(Id)) : runs.item_bytes[p - 1]),
                   "an output needs one entry per record");
  for_blocks(threads, grid.num_buckets(), [&, &pieces = pieces, &offsets = offsets](int64_t bucket) {
    thread_local std::vector<uint32_t> cursors;
    const auto b = static_cast<size_t>(bucket);
    const auto first = static_cast<size_t>(grid.first_key(bucket)), end = static_cast<size_t>(grid.end_key(bucket));
    const auto own = std::span(pieces).subspan(b * num_runs, num_runs);
    sort_records<Id>(own, num_values > 0, first_entry + offsets[b], indptr.subspan(first, end - first),
                     reinterpret_cast<Id*>(outs[0].data()) + offsets[b], cursors);
    for (size_t p = 1; p <= num_values; ++p) {
      const int64_t item = runs.item_bytes[p - 1];
      for (const auto& piece : own)
        place_values(piece.records,
                     runs.memory.data() + runs.places[piece.run * (num_values + 1) + p] + piece.before * item, item,
                     outs[p].data() + offsets[b] * item);
    }
  });
}

}  // namespace

int64_t scattered_bytes(int64_t num_src) {
  return needs_wide_ids(num_src) ? sizeof(Scattered<int64_t>) : sizeof(Scattered<int32_t>);
}

std::vector<int64_t> count_buckets(const IdView& dst, int64_t first_edge, const BucketGrid& grid, int threads) {
  const auto num_buckets = static_cast<size_t>(grid.num_buckets());
  std::vector<int64_t> counts(num_buckets * static_cast<size_t>(threads), 0);
  dst.visit([&](const auto& d) {
    for_cuts(threads, dst.size, [&](int64_t begin, int64_t end, int t) {
      std::vector<int64_t> own(num_buckets, 0);
      for (int64_t k = begin; k < end; ++k) {
        const int64_t v = d[k];
        if (!in_range(v, grid.num_keys)) edge_out_of_range(first_edge + k, "destination", v, grid.num_keys);
        ++own[v >> grid.shift];
      }
      std::copy(own.begin(), own.end(), counts.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(t) * num_buckets));
    });
  });
  return counts;
}

void scatter_edges(const EdgeChunk& chunk, int64_t num_src, const BucketGrid& grid, std::span<const int64_t> counts,
                   int64_t first, std::span<const std::span<std::byte>> parts, int threads) {
  const auto num_buckets = grid.num_buckets();
  TIERING_EXPECT(chunk.src.size == chunk.dst.size, "a chunk has ", chunk.dst.size, " destinations and ", chunk.src.size,
                 " sources: one of each per edge is needed");
  TIERING_EXPECT(static_cast<int64_t>(counts.size()) == num_buckets * threads,
                 "the counts are not those of as many threads and buckets");
  TIERING_EXPECT(0 <= first && first <= num_buckets, "the first bucket is not among the buckets");
  TIERING_EXPECT(parts.size() == chunk.values.size() + 1, "memory for the records and for each value is needed");
  const auto [places, total] = item_places(counts, first, threads);
  for (size_t p = 0; p < parts.size(); ++p) {
    const int64_t item = p == 0 ? scattered_bytes(num_src) : chunk.values[p - 1].item_bytes;
    TIERING_EXPECT(total * item <= static_cast<int64_t>(parts[p].size()), "the memory for the records is too small");
    TIERING_EXPECT(reinterpret_cast<uintptr_t>(parts[p].data()) % 16 == 0, "the records are not aligned");
  }
  chunk.dst.visit([&, &places = places](const auto& dst) {
    for_cuts(threads, chunk.dst.size, [&](int64_t begin, int64_t end, int t) {
      const auto own = static_cast<size_t>(num_buckets);
      const size_t at = static_cast<size_t>(t) * own;
      const Share share{begin, end, first, grid.shift, std::span(places).subspan(at, own), counts.subspan(at, own)};
      if (needs_wide_ids(num_src))
        send_records<int64_t>(chunk, dst, num_src, share, parts[0]);
      else
        send_records<int32_t>(chunk, dst, num_src, share, parts[0]);
      for (size_t p = 1; p < parts.size(); ++p)
        send_values(dst, share, parts[p], chunk.values[p - 1], chunk.first_edge);
    });
  });
}

void sort_runs(const ScatteredRuns& runs, const BucketGrid& grid, int64_t num_src, int64_t first_entry,
               std::span<int64_t> indptr, std::span<const std::span<std::byte>> outs, int threads) {
  const auto num_buckets = static_cast<size_t>(grid.num_buckets());
  TIERING_EXPECT(static_cast<int64_t>(indptr.size()) == grid.num_keys, "indptr needs one entry per column");
  TIERING_EXPECT(runs.counts.size() % num_buckets == 0 &&
                     runs.places.size() == runs.counts.size() / num_buckets * (runs.item_bytes.size() + 1),
                 "a run needs one count per bucket, one place for its records and one for each value");
  if (needs_wide_ids(num_src))
    sort_all<int64_t>(runs, grid, first_entry, indptr, outs, threads);
  else
    sort_all<int32_t>(runs, grid, first_entry, indptr, outs, threads);
}

}  // namespace tiering
