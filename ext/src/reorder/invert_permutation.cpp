// The inverse of a permutation, proving on the way that it is one.
//
// Approach:   scatter inverse[p[i]] = i into -1 everywhere, then look for a -1 front to back: n places filled by n
//             ids below n are filled once each. A fault found, one serial pass names it.
// Parallelism: relaxed atomic stores, plain moves on every machine we build for; the result of a
//             bijection is unique.
#include <algorithm>
#include <atomic>
#include <string>
#include <tiering/errors.hpp>
#include <tiering/parallel.hpp>
#include <tiering/reorder.hpp>
#include <vector>

namespace tiering {
namespace {

template <typename Id>
void scatter(std::span<const Id> p, Buffer<Id>& inverse, int threads) {
  const auto n = static_cast<int64_t>(p.size());
  run_team(threads, [&](int t) {
    const auto [begin, end] = even_cut(n, threads, t);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t id = p[static_cast<size_t>(i)];
      TIERING_EXPECT(static_cast<uint64_t>(id) < static_cast<uint64_t>(n),
                     "not a permutation: entry " + std::to_string(i) + " is " + std::to_string(id) +
                         ", outside 0.." + std::to_string(n - 1));
      std::atomic_ref<Id>(inverse[id]).store(static_cast<Id>(i), std::memory_order_relaxed);
    }
  });
}

/// Calls body(begin, end) for a range of the entries on each thread.
template <typename Body>
void for_ranges(int64_t n, int threads, Body&& body) {
  run_team(threads, [&](int t) {
    const auto [begin, end] = even_cut(n, threads, t);
    body(begin, end);
  });
}

template <typename Id>
void fill_with_none(Buffer<Id>& inverse, int threads) {
  for_ranges(inverse.size(), threads, [&](int64_t begin, int64_t end) {
    std::fill(inverse.data() + begin, inverse.data() + end, Id{-1});
  });
}

template <typename Id>
bool is_full(const Buffer<Id>& inverse, int threads) {
  std::atomic<bool> full{true};
  for_ranges(inverse.size(), threads, [&](int64_t begin, int64_t end) {
    Id least = 0;
    for (int64_t i = begin; i < end; ++i) least = std::min(least, inverse[i]);
    if (least < 0) full = false;
  });
  return full;
}

/// Names the first id that stands twice, and the smallest that is missing.
template <typename Id>
[[noreturn]] void explain(std::span<const Id> p) {
  std::vector<int64_t> first(p.size(), -1);
  std::string twice;
  for (size_t i = 0; i < p.size(); ++i) {
    auto& seen = first[static_cast<size_t>(p[i])];
    if (seen < 0)
      seen = static_cast<int64_t>(i);
    else if (twice.empty())
      twice = "id " + std::to_string(p[i]) + " stands at " + std::to_string(seen) + " and again at " +
              std::to_string(i);
  }
  const auto missing = std::find(first.begin(), first.end(), -1) - first.begin();
  throw InputError("not a permutation: " + twice + "; id " + std::to_string(missing) + " is missing");
}

}  // namespace

IdBuffer invert_permutation(const IdSpan& p, int threads) {
  return p.visit([&]<typename Id>(std::span<const Id> ids) -> IdBuffer {
    Buffer<Id> inverse(p.size);
    fill_with_none(inverse, threads);
    scatter(ids, inverse, threads);
    if (!is_full(inverse, threads)) explain(ids);
    return inverse;
  });
}

}  // namespace tiering
