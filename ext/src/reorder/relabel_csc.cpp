// Adjacency under new ids.
//
// Returns:    column j = the old column dst_new_to_old[j], each entry u replaced by src_old_to_new[u],
//             order kept.
// Approach:   1. degrees of the new columns, 2. their prefix sum, 3. fill: threads own equal shares of the
//             *entries*. The fill works in batches: gather the old ids of many columns into a buffer in
//             L1, then translate the batch in one loop whose branches do not depend on the columns'
//             lengths, so that a core keeps as many cache misses in flight as it can. (Translating long
//             columns where they lie is slower.)
// Memory:     the result, and one small batch per thread.
// Parallelism: the result does not depend on the number of threads.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <tiering/errors.hpp>
#include <tiering/parallel.hpp>
#include <tiering/reorder.hpp>
#include <tiering/scan_columns.hpp>
#include <utility>
#include <vector>

namespace tiering {
namespace {

constexpr int64_t kAhead = 16;  // columns whose start is fetched ahead

template <typename Map>
Buffer<int64_t> relabelled_indptr(const CscView& csc, std::span<const Map> new_to_old, int threads) {
  const auto n = static_cast<int64_t>(new_to_old.size());
  Buffer<int64_t> indptr(n + 1);
  std::vector<int64_t> sums(static_cast<size_t>(threads) + 1, 0);
  run_team(threads, [&](int t) {
    const auto [begin, end] = even_cut(n, threads, t);
    int64_t sum = 0;
    for (int64_t j = begin; j < end; ++j) {
      const int64_t v = new_to_old[static_cast<size_t>(j)];
      TIERING_EXPECT(static_cast<uint64_t>(v) < static_cast<uint64_t>(csc.num_columns()),
                     "dst_new_to_old[" + std::to_string(j) + "] is " + std::to_string(v) + ", outside 0.." +
                         std::to_string(csc.num_columns() - 1));
      indptr[j] = sum;
      sum += csc.indptr[static_cast<size_t>(v) + 1] - csc.indptr[static_cast<size_t>(v)];
    }
    sums[static_cast<size_t>(t) + 1] = sum;
  });
  for (size_t t = 1; t < sums.size(); ++t) sums[t] += sums[t - 1];
  run_team(threads, [&](int t) {
    const auto [begin, end] = even_cut(n, threads, t);
    for (int64_t j = begin; j < end; ++j) indptr[j] += sums[static_cast<size_t>(t)];
  });
  indptr[n] = sums.back();
  return indptr;
}

/// One thread's share of the fill: entries [begin, end) of the result.
template <typename Index, typename Map, typename SrcMap, typename Out>
class Filler {
 public:
  Filler(const CscView& csc, std::span<const Index> indices, std::span<const Map> new_to_old,
         std::span<const SrcMap> old_to_new, std::span<const int64_t> new_indptr, Out* out,
         int64_t* positions)
      : csc_(csc),
        indices_(indices),
        new_to_old_(new_to_old),
        old_to_new_(old_to_new),
        new_indptr_(new_indptr),
        out_(out),
        positions_(positions) {}

  void fill(int64_t begin, int64_t end) {
    next_ = begin;
    scan_columns(new_indptr_, begin, end, [&](int64_t j, int64_t first, int64_t last) {
      prefetch_column(j + kAhead);
      const int64_t old_first = csc_.indptr[old_column(j)] + (first - new_indptr_[static_cast<size_t>(j)]);
      const int64_t count = last - first;
      if (positions_) std::iota(positions_ + first, positions_ + last, old_first);
      if (count <= kShort && old_first + kShort <= static_cast<int64_t>(indices_.size()))
        append_short(old_first, count);
      else
        append(old_first, count);
    });
    translate();
  }

 private:
  static constexpr int64_t kBatch = 1024;
  static constexpr int64_t kShort = 16;  // columns up to this length are copied by one block of fixed size

  size_t old_column(int64_t j) const { return static_cast<size_t>(new_to_old_[static_cast<size_t>(j)]); }

  void prefetch_column(int64_t j) const {
    const auto n = static_cast<int64_t>(new_to_old_.size());
    if (j + kAhead < n) __builtin_prefetch(&csc_.indptr[old_column(j + kAhead)]);
    if (j < n) __builtin_prefetch(indices_.data() + csc_.indptr[old_column(j)]);
  }

  /// Adds a short column to the batch; copies past its end, where the next one will overwrite.
  void append_short(int64_t old_first, int64_t count) {
    std::memcpy(batch_ + filled_, indices_.data() + old_first, kShort * sizeof(Index));
    filled_ += count;
    if (filled_ >= kBatch) translate();
  }

  void append(int64_t old_first, int64_t count) {
    for (int64_t done = 0; done < count;) {
      const int64_t n = std::min(count - done, kBatch - filled_);
      std::copy_n(indices_.data() + old_first + done, n, batch_ + filled_);
      done += n;
      filled_ += n;
      if (filled_ == kBatch) translate();
    }
  }

  /// Writes the batch under its new ids.
  void translate() {
    const SrcMap* map = old_to_new_.data();
    const uint64_t size = old_to_new_.size();
    Out* out = out_ + next_;
    for (int64_t i = 0; i < filled_; ++i) {
      const int64_t u = batch_[i];
      if (static_cast<uint64_t>(u) >= size) bad_source(u);
      out[i] = static_cast<Out>(map[u]);
    }
    next_ += std::exchange(filled_, 0);
  }

  [[noreturn, gnu::cold, gnu::noinline]] void bad_source(int64_t u) const {
    throw InputError("source id " + std::to_string(u) + " is outside src_old_to_new, which has " +
                     std::to_string(old_to_new_.size()) + " entries");
  }

  const CscView& csc_;
  std::span<const Index> indices_;
  std::span<const Map> new_to_old_;
  std::span<const SrcMap> old_to_new_;
  std::span<const int64_t> new_indptr_;
  Out* out_;
  int64_t* positions_;
  Index batch_[kBatch + kShort];
  int64_t filled_ = 0;
  int64_t next_ = 0;
};

template <typename Index, typename Map, typename SrcMap>
CscArrays relabel(const CscView& csc, std::span<const Index> indices, std::span<const Map> new_to_old,
                  std::span<const SrcMap> old_to_new, int threads, bool want_positions) {
  CscArrays out;
  out.indptr = relabelled_indptr(csc, new_to_old, threads);
  const int64_t num_edges = out.indptr[out.indptr.size() - 1];
  if (want_positions) out.positions = Buffer<int64_t>(num_edges);
  auto fill = [&](auto buffer) {
    using Out = std::remove_reference_t<decltype(buffer[0])>;
    run_team(threads, [&](int t) {
      const auto [begin, end] = even_cut(num_edges, threads, t);
      Filler<Index, Map, SrcMap, Out> filler(csc, indices, new_to_old, old_to_new, out.indptr.span(),
                                             buffer.data(), want_positions ? out.positions.data() : nullptr);
      filler.fill(begin, end);
    });
    out.indices = std::move(buffer);
  };
  if (needs_wide_ids(static_cast<int64_t>(old_to_new.size())))
    fill(Buffer<int64_t>(num_edges));
  else
    fill(Buffer<int32_t>(num_edges));
  return out;
}

}  // namespace

CscArrays relabel_csc(const CscView& csc, const IdSpan& dst_new_to_old, const IdSpan& src_old_to_new,
                      int threads, bool want_positions) {
  TIERING_EXPECT(dst_new_to_old.size == csc.num_columns(),
                 "dst_new_to_old has " + std::to_string(dst_new_to_old.size) + " entries for " +
                     std::to_string(csc.num_columns()) + " columns");
  check_indptr(csc, threads);
  return csc.indices.visit([&](const auto& indices) {
    return dst_new_to_old.visit([&](const auto& new_to_old) {
      return src_old_to_new.visit([&](const auto& old_to_new) {
        return relabel(csc, indices, new_to_old, old_to_new, threads, want_positions);
      });
    });
  });
}

}  // namespace tiering
