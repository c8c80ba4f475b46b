// Nodes by descending score, ties by ascending id. A double's bits, flipped so that unsigned order is descending score,
// are the key. Keys are counted by their first 20 bits, neighbouring values put together to buckets of about one size;
// keys and ids go to their buckets in id order, and each bucket is sorted where it fits the private cache, stably. (One
// radix sort over all bits passes through memory six times.) A bucket is large only where many scores share 20 bits:
// all threads sort it together. Memory: 12 bytes per node, 16 with 64-bit ids, of which the ids are the result; at
// worst as much again for the largest bucket; 4 MiB; for each thread 8 MiB, lines, and 32 bytes per node of a bucket.
#include <array>
#include <bit>
#include <cmath>
#include <tiering/line_writer.hpp>
#include <tiering/parallel.hpp>
#include <tiering/reorder.hpp>

namespace tiering {
namespace {

constexpr int kDigitBits = 11;
constexpr size_t kRadix = size_t{1} << kDigitBits;
constexpr int kPrefixBits = 20;
constexpr int64_t kPrefixes = int64_t{1} << kPrefixBits;
constexpr int64_t kBucket = int64_t{1} << 15;  ///< nodes that a bucket should hold
constexpr int64_t kMostBuckets = int64_t{1} << 12;
constexpr int64_t kLarge = int64_t{1} << 19;           ///< nodes from which all threads sort a bucket together
constexpr int64_t kNodesPerThread = int64_t{1} << 20;  ///< at least: fewer are not worth the memory of a thread
constexpr std::ptrdiff_t kShortRun = 24;               ///< equal first bits up to this many are sorted by insertion

/// Unsigned order of the result = descending order of the score; -0 equals 0.
uint64_t descending_key(double score) {
  const auto bits = std::bit_cast<uint64_t>(score + 0.0);
  const uint64_t ascending = bits >> 63 ? ~bits : bits | (uint64_t{1} << 63);
  return ~ascending;
}

size_t prefix(uint64_t key) { return key >> (64 - kPrefixBits); }

/// Keys and ids side by side, as two arrays.
template <typename Id>
struct PairsView {
  uint64_t* keys;
  Id* ids;
  int64_t size;
};

/// Bits in which not all keys agree.
uint64_t varying_bits(const uint64_t* keys, int64_t size) {
  uint64_t bits = 0;
  for (int64_t i = 0; i < size; ++i) bits |= keys[i] ^ keys[0];
  return bits;
}

// --- a bucket that one thread sorts -----------------------------------------------------------------------------

template <typename Id>
struct Pair {
  uint64_t key;
  Id id;
};

/// Sorts buckets in memory of its own, one after the other.
template <typename Id>
class BucketSorter {
 public:
  void sort(const PairsView<Id>& bucket) {
    const uint64_t varying = varying_bits(bucket.keys, bucket.size);
    if (varying == 0) return;
    const auto size = static_cast<size_t>(bucket.size);
    first_.resize(size), second_.resize(size);
    const int top = static_cast<int>(std::bit_width(varying)), low = std::max(0, top - 2 * kDigitBits);
    pass(
        low,
        [&](auto&& put) {
          for (int64_t i = 0; i < bucket.size; ++i) put(Pair<Id>{bucket.keys[i], bucket.ids[i]});
        },
        first_);
    if (top - low > kDigitBits) {
      pass(
          low + kDigitBits,
          [&](auto&& put) {
            for (const auto& pair : first_) put(pair);
          },
          second_);
      std::swap(first_, second_);
    }
    if (low > 0) sort_equal(low);
    for (size_t i = 0; i < size; ++i) bucket.ids[i] = first_[i].id;
  }

 private:
  /// One stable pass over the digit at bit `shift`; walk(put) calls put for every pair.
  template <typename Walk>
  void pass(int shift, Walk&& walk, std::vector<Pair<Id>>& to) {
    auto digit = [shift](const Pair<Id>& pair) { return (pair.key >> shift) & (kRadix - 1); };
    places_.fill(0);
    walk([&](const Pair<Id>& pair) { ++places_[digit(pair)]; });
    uint32_t next = 0;
    for (auto& place : places_) next += std::exchange(place, next);
    walk([&](const Pair<Id>& pair) { to[places_[digit(pair)]++] = pair; });
  }

  /// Sorts runs of pairs that agree from bit `low` on by the bits below.
  void sort_equal(int low) {
    auto less = [](const Pair<Id>& a, const Pair<Id>& b) { return a.key < b.key; };
    for (auto begin = first_.begin(); begin != first_.end();) {
      auto end = begin + 1;
      bool sorted = true;
      for (; end != first_.end() && (end->key >> low) == (begin->key >> low); ++end)
        sorted &= !(end->key < (end - 1)->key);
      if (!sorted && end - begin <= kShortRun)
        for (auto at = begin + 1; at != end; ++at) std::rotate(std::upper_bound(begin, at, *at, less), at, at + 1);
      else if (!sorted)
        std::stable_sort(begin, end, less);
      begin = end;
    }
  }

  std::vector<Pair<Id>> first_, second_;
  std::array<uint32_t, kRadix> places_;
};

// --- a bucket that all threads sort -----------------------------------------------------------------------------

/// One stable pass: from -> to by the digit at bit `shift`.
template <typename Id>
void team_pass(const PairsView<Id>& from, const PairsView<Id>& to, int shift, int threads) {
  auto digit = [&](int64_t i) { return (from.keys[i] >> shift) & (kRadix - 1); };
  std::vector<std::array<int64_t, kRadix>> places(static_cast<size_t>(threads));
  run_team(threads, [&](int t) {
    auto& counts = places[t];
    counts.fill(0);
    const auto [begin, end] = even_cut(from.size, threads, t);
    for (int64_t i = begin; i < end; ++i) ++counts[digit(i)];
  });
  int64_t next = 0;
  for (size_t d = 0; d < kRadix; ++d)
    for (auto& counts : places) next += std::exchange(counts[d], next);
  run_team(threads, [&](int t) {
    auto& at = places[t];
    const auto [begin, end] = even_cut(from.size, threads, t);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t place = at[digit(i)]++;
      to.keys[place] = from.keys[i];
      to.ids[place] = from.ids[i];
    }
  });
}

template <typename Id>
void team_sort(const PairsView<Id>& bucket, int threads) {
  const uint64_t varying = varying_bits(bucket.keys, bucket.size);
  if (varying == 0) return;
  Buffer<uint64_t> keys(bucket.size);
  Buffer<Id> ids(bucket.size);
  PairsView<Id> from = bucket, to{keys.data(), ids.data(), bucket.size};
  for (int shift = 0; shift < 64; shift += kDigitBits) {
    if (((varying >> shift) & (kRadix - 1)) == 0) continue;
    team_pass(from, to, shift, threads);
    std::swap(from, to);
  }
  if (from.ids != bucket.ids) std::copy(from.ids, from.ids + from.size, bucket.ids);
}

// --- all nodes ----------------------------------------------------------------------------------------------------

template <typename Id>
class SorterOf final : public ScoreSorter {
 public:
  SorterOf(int64_t size, int threads) : size_(size), threads_(threads), keys_(size), ids_(size) {
    counts_.resize(static_cast<size_t>(threads));
  }

  void count(std::span<const double> scores) override {
    const auto size = static_cast<int64_t>(scores.size());
    TIERING_EXPECT(size <= size_ - counted_, "expected ", size_, " scores, found more");
    run_team(threads_, [&](int t) {
      auto& counts = counts_[t];
      if (counts.empty()) counts.assign(kPrefixes, 0);
      const auto [begin, end] = even_cut(size, threads_, t);
      for (int64_t i = begin; i < end; ++i) {
        const double score = scores[i];
        TIERING_EXPECT(!std::isnan(score), "the score of node ", counted_ + i, " is NaN");
        ++counts[prefix(descending_key(score))];
      }
    });
    counted_ += size;
  }

  void place(std::span<const double> scores) override {
    if (ends_.empty()) cut_buckets();
    const auto size = static_cast<int64_t>(scores.size());
    TIERING_EXPECT(size <= size_ - placed_, "expected ", size_, " scores, found more");
    std::vector<std::vector<int64_t>> places(static_cast<size_t>(threads_), std::vector<int64_t>(ends_.size(), 0));
    for_cuts(threads_, size, [&](int64_t begin, int64_t end, int t) {
      auto& counts = places[t];
      for (int64_t i = begin; i < end; ++i) ++counts[bucket(scores[i])];
    });
    const auto counts = places;
    for (size_t b = 0; b < ends_.size(); ++b)
      for (auto& begins : places) next_[b] += std::exchange(begins[b], next_[b]);
    for (size_t b = 0; b < ends_.size(); ++b)
      TIERING_EXPECT(next_[b] <= ends_[b], "the scores changed while they were sorted");
    run_team(threads_, [&](int t) { put(scores, places[t], counts[t], t); });
    placed_ += size;
  }

  IdBuffer finish() override {
    TIERING_EXPECT(placed_ == size_, "expected ", size_, " scores, found ", placed_);
    const auto buckets = static_cast<int64_t>(ends_.size());
    auto view = [&](int64_t b) {
      const int64_t begin = b ? ends_[static_cast<size_t>(b) - 1] : 0;
      return PairsView<Id>{keys_.data() + begin, ids_.data() + begin, ends_[b] - begin};
    };
    std::atomic<int64_t> next{0};
    run_team(threads_, [&](int) {
      BucketSorter<Id> sorter;
      for (int64_t b = next++; b < buckets; b = next++)
        if (const auto pairs = view(b); pairs.size < kLarge) sorter.sort(pairs);
    });
    for (int64_t b = 0; b < buckets; ++b)
      if (const auto pairs = view(b); pairs.size >= kLarge) team_sort(pairs, threads_);
    return std::move(ids_);
  }

 private:
  /// Puts prefixes together to buckets.
  void cut_buckets() {
    TIERING_EXPECT(counted_ == size_, "expected ", size_, " scores, found ", counted_);
    const int64_t least = std::max(kBucket, size_ / kMostBuckets);
    bucket_of_.assign(kPrefixes, 0);
    int64_t begin = 0, end = 0;
    for (size_t p = 0; p < static_cast<size_t>(kPrefixes); ++p) {
      int64_t count = 0;
      for (const auto& counts : counts_) count += counts.empty() ? 0 : counts[p];
      if (count && end > begin && end - begin + count > least) ends_.push_back(begin = end);
      bucket_of_[p] = static_cast<uint32_t>(ends_.size());
      end += count;
    }
    ends_.push_back(end);
    next_.assign(ends_.size(), 0);
    for (size_t b = 1; b < ends_.size(); ++b) next_[b] = ends_[b - 1];
    counts_.clear();
  }

  size_t bucket(double score) const { return bucket_of_[prefix(descending_key(score))]; }

  void put(std::span<const double> scores, const std::vector<int64_t>& places, const std::vector<int64_t>& counts,
           int t) {
    std::vector<uint64_t*> keys;
    std::vector<Id*> ids;
    for (const int64_t place : places) {
      keys.push_back(keys_.data() + place);
      ids.push_back(ids_.data() + place);
    }
    LineWriter<uint64_t> key_writer(std::move(keys), counts);
    LineWriter<Id> id_writer(std::move(ids), counts);
    const auto [begin, end] = even_cut(static_cast<int64_t>(scores.size()), threads_, t);
    for (int64_t i = begin; i < end; ++i) {
      const uint64_t key = descending_key(scores[i]);
      const size_t b = bucket_of_[prefix(key)];
      key_writer.put(b, key);
      id_writer.put(b, static_cast<Id>(placed_ + i));
    }
    key_writer.finish();
    id_writer.finish();
  }

  int64_t size_, counted_ = 0, placed_ = 0;
  int threads_;
  Buffer<uint64_t> keys_;
  Buffer<Id> ids_;
  std::vector<std::vector<int64_t>> counts_;  ///< nodes of each prefix, by thread
  std::vector<uint32_t> bucket_of_;           ///< by prefix
  std::vector<int64_t> ends_;                 ///< of the buckets
  std::vector<int64_t> next_;                 ///< where the next chunk goes
};

}  // namespace

std::unique_ptr<ScoreSorter> ScoreSorter::make(int64_t size, int threads) {
  threads = static_cast<int>(std::max<int64_t>(1, std::min<int64_t>(size / kNodesPerThread, threads)));
  if (needs_wide_ids(size)) return std::make_unique<SorterOf<int64_t>>(size, threads);
  return std::make_unique<SorterOf<int32_t>>(size, threads);
}

IdBuffer sort_by_score(std::span<const double> scores, int threads) {
  const auto sorter = ScoreSorter::make(static_cast<int64_t>(scores.size()), threads);
  sorter->count(scores);
  sorter->place(scores);
  return sorter->finish();
}

}  // namespace tiering
