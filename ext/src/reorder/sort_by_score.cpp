// Nodes by descending score, ties by ascending id.
//
// Approach:   a double's bits, flipped so that unsigned order is descending score, are the key; a stable
//             radix sort (11 bits a pass, least significant first) that starts in id order breaks ties by
//             id. Digits that all keys share are skipped: out-degrees, say, need 2 passes of 6.
// Memory:     two copies of (key, id) besides the result: 24 bytes per node with 32-bit ids, 32 with
//             64-bit ids.
// Parallelism: each pass counts and scatters per even chunk, chunk after chunk within a digit:
//             stable, hence the same result for any number of threads.
#include <array>
#include <bit>
#include <cmath>
#include <string>
#include <tiering/errors.hpp>
#include <tiering/parallel.hpp>
#include <tiering/reorder.hpp>
#include <utility>
#include <vector>

namespace tiering {
namespace {

constexpr int kDigitBits = 11;
constexpr int kDigits = (64 + kDigitBits - 1) / kDigitBits;
constexpr size_t kRadix = size_t{1} << kDigitBits;

/// Unsigned order of the result = descending order of the score; -0 equals 0.
uint64_t descending_key(double score) {
  const auto bits = std::bit_cast<uint64_t>(score + 0.0);
  const uint64_t ascending = bits >> 63 ? ~bits : bits | (uint64_t{1} << 63);
  return ~ascending;
}

size_t digit(uint64_t key, int pass) { return (key >> (pass * kDigitBits)) & (kRadix - 1); }

/// Keys and ids side by side, as two arrays.
template <typename Id>
struct Pairs {
  explicit Pairs(int64_t n) : keys(n), ids(n) {}
  Buffer<uint64_t> keys;
  Buffer<Id> ids;
};

template <typename Id>
void load(std::span<const double> scores, Pairs<Id>& pairs, int threads) {
  run_team(threads, [&](int t) {
    const auto [begin, end] = even_cut(pairs.keys.size(), threads, t);
    for (int64_t i = begin; i < end; ++i) {
      const double score = scores[static_cast<size_t>(i)];
      TIERING_EXPECT(!std::isnan(score), "the score of node " + std::to_string(i) + " is NaN");
      pairs.keys[i] = descending_key(score);
      pairs.ids[i] = static_cast<Id>(i);
    }
  });
}

/// Bits in which not all keys agree.
uint64_t varying_bits(std::span<const uint64_t> keys, int threads) {
  std::vector<uint64_t> differing(static_cast<size_t>(threads), 0);
  run_team(threads, [&](int t) {
    const auto [begin, end] = even_cut(static_cast<int64_t>(keys.size()), threads, t);
    uint64_t bits = 0;
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) bits |= keys[i] ^ keys[0];
    differing[static_cast<size_t>(t)] = bits;
  });
  uint64_t all = 0;
  for (const uint64_t bits : differing) all |= bits;
  return all;
}

/// One stable pass: from -> to by digit `pass`.
template <typename Id>
void radix_pass(const Pairs<Id>& from, Pairs<Id>& to, int pass, int threads) {
  const int64_t n = from.keys.size();
  std::vector<std::array<int64_t, kRadix>> places(static_cast<size_t>(threads));
  run_team(threads, [&](int t) {
    auto& counts = places[static_cast<size_t>(t)];
    counts.fill(0);
    const auto [begin, end] = even_cut(n, threads, t);
    for (int64_t i = begin; i < end; ++i) ++counts[digit(from.keys[i], pass)];
  });
  int64_t next = 0;
  for (size_t d = 0; d < kRadix; ++d)
    for (auto& counts : places) next += std::exchange(counts[d], next);
  run_team(threads, [&](int t) {
    auto& at = places[static_cast<size_t>(t)];
    const auto [begin, end] = even_cut(n, threads, t);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t place = at[digit(from.keys[i], pass)]++;
      to.keys[place] = from.keys[i];
      to.ids[place] = from.ids[i];
    }
  });
}

template <typename Id>
Buffer<Id> sorted_ids(std::span<const double> scores, int threads) {
  const auto n = static_cast<int64_t>(scores.size());
  Pairs<Id> pairs(n), spare(n);
  load(scores, pairs, threads);
  const uint64_t varying = varying_bits(pairs.keys.span(), threads);
  for (int pass = 0; pass < kDigits; ++pass) {
    if (digit(varying, pass) == 0) continue;
    radix_pass(pairs, spare, pass, threads);
    std::swap(pairs, spare);
  }
  return std::move(pairs.ids);
}

}  // namespace

IdBuffer sort_by_score(std::span<const double> scores, int threads) {
  if (needs_wide_ids(static_cast<int64_t>(scores.size()))) return sorted_ids<int64_t>(scores, threads);
  return sorted_ids<int32_t>(scores, threads);
}

}  // namespace tiering
