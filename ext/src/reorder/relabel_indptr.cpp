// Offsets of an adjacency under new ids: the degrees go to their new columns, then a prefix sum.
#include <tiering/errors.hpp>
#include <tiering/parallel.hpp>
#include <tiering/reorder.hpp>

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
      TIERING_EXPECT(0 <= indptr[v] && indptr[v] <= indptr[v + 1], "indptr falls from ", indptr[v], " at ", v, " to ",
                     indptr[v + 1], " at ", v + 1);
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
    int64_t next = sums[static_cast<size_t>(t)];
    for (int64_t v = begin; v < end; ++v) next += std::exchange(values[v], next);
  });
  values[n] = sums.back();
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
  TIERING_EXPECT(result[n] == indptr.back(), "dst_old_to_new is no permutation: the columns it leads to have ",
                 result[n], " entries, the graph has ", indptr.back());
  return result;
}

}  // namespace tiering
