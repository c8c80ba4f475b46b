// Nodes by descending score, ties by ascending id. A double's bits, flipped so that unsigned order is descending score,
// are the key. Keys are counted by their first 20 bits, neighboring values put together to buckets of about one size;
// keys and ids go to their buckets in id order, and each bucket is sorted where it fits the private cache, stably. (One
// radix sort over all bits passes through memory six times.) A bucket is large only where many scores share 20 bits:
// it is sorted like all nodes, by the bits that follow. Memory: 12 bytes per node, 16 with 64-bit ids, of which the ids are
// the result; at worst as much again for the largest bucket, and the largest in it; 4 MiB; for each thread 8 MiB, lines,
// and 32 bytes per node of a bucket.
#include <array>
#include <bit>
#include <cmath>
#include <tiering/line_writer.hpp>
#include <tiering/reorder.hpp>

namespace tiering {
namespace {

constexpr int kDigitBits = 11;
constexpr size_t kRadix = size_t{1} << kDigitBits;
constexpr int kPrefixBits = 20;
constexpr int64_t kPrefixes = int64_t{1} << kPrefixBits;
constexpr int64_t kBucket = int64_t{1} << 15;  ///< nodes that a bucket should hold
constexpr int64_t kMostBuckets = int64_t{1} << 12;
constexpr int64_t kLarge = int64_t{1} << 19;           ///< nodes from which a bucket is cut again
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

template <typename Id>
class SorterOf final : public ScoreSorter {
 public:
  SorterOf(int64_t size, int threads) : size_(size), threads_(threads), keys_(size), ids_(size) {
    counts_.resize(static_cast<size_t>(threads));
  }

  void count(std::span<const double> scores) override {
    count_keys(static_cast<int64_t>(scores.size()), [scores, first = counted_](int64_t i) {
      TIERING_EXPECT(!std::isnan(scores[i]), "the score of node ", first + i, " is NaN");
      return descending_key(scores[i]);
    });
  }

  void place(std::span<const double> scores) override {
    place_keys(
        static_cast<int64_t>(scores.size()), [=](int64_t i) { return descending_key(scores[i]); },
        [first = placed_](int64_t i) { return static_cast<Id>(first + i); });
  }

  IdBuffer finish() override {
    TIERING_EXPECT(placed_ == size_, "expected ", size_, " scores, found ", placed_);
    const auto buckets = static_cast<int64_t>(ends_.size());
    auto view = [&](int64_t b) {
      const int64_t begin = b ? ends_[static_cast<size_t>(b) - 1] : 0;
      return PairsView<Id>{keys_.data() + begin, ids_.data() + begin, ends_[b] - begin};
    };
    bucket_of_ = {};
    std::vector<BucketSorter<Id>> sorters(static_cast<size_t>(threads_));
    for_blocks(threads_, buckets, [&](int64_t b, int t) {
      if (const auto pairs = view(b); pairs.size < kLarge) sorters[t].sort(pairs);
    });
    sorters.clear();
    for (int64_t b = 0; b < buckets; ++b)
      if (const auto pairs = view(b); pairs.size >= kLarge) sort_large(pairs);
    return std::move(ids_);
  }

 private:
  /// `key_of(i)`: the key of the i-th of `size` nodes that follow those before.
  template <typename KeyOf>
  void count_keys(int64_t size, KeyOf key_of) {
    TIERING_EXPECT(size <= size_ - counted_, "expected ", size_, " scores, found more");
    for_cuts(threads_, size, [&, key_of](int64_t begin, int64_t end, int t) {
      auto& counts = counts_[t];
      if (counts.empty()) counts.assign(kPrefixes, 0);
      for (int64_t i = begin; i < end; ++i) ++counts[prefix(key_of(i))];
    });
    counted_ += size;
  }

  template <typename KeyOf, typename IdOf>
  void place_keys(int64_t size, KeyOf key_of, IdOf id_of) {
    if (ends_.empty()) cut_buckets();
    TIERING_EXPECT(size <= size_ - placed_, "expected ", size_, " scores, found more");
    std::vector<std::vector<int64_t>> places(static_cast<size_t>(threads_), std::vector<int64_t>(ends_.size(), 0));
    for_cuts(threads_, size, [&, key_of](int64_t begin, int64_t end, int t) {
      auto& counts = places[t];
      for (int64_t i = begin; i < end; ++i) ++counts[bucket_of_[prefix(key_of(i))]];
    });
    const auto counts = places;
    for (size_t b = 0; b < ends_.size(); ++b)
      for (auto& begins : places) next_[b] += std::exchange(begins[b], next_[b]);
    for (size_t b = 0; b < ends_.size(); ++b)
      TIERING_EXPECT(next_[b] <= ends_[b], "the scores changed while they were sorted");
    for_cuts(threads_, size, [&, key_of, id_of](int64_t begin, int64_t end, int t) {
      std::vector<uint64_t*> keys;
      std::vector<Id*> ids;
      for (const int64_t place : places[t]) {
        keys.push_back(keys_.data() + place);
        ids.push_back(ids_.data() + place);
      }
      LineWriter<uint64_t> key_writer(std::move(keys), counts[t]);
      LineWriter<Id> id_writer(std::move(ids), counts[t]);
      for (int64_t i = begin; i < end; ++i) {
        const uint64_t key = key_of(i);
        const size_t b = bucket_of_[prefix(key)];
        key_writer.put(b, key);
        id_writer.put(b, id_of(i));
      }
      key_writer.finish();
      id_writer.finish();
    });
    placed_ += size;
  }

  /// Sorts a bucket as all nodes are sorted, by its keys from the first bit on in which they differ.
  void sort_large(const PairsView<Id>& bucket) {
    const uint64_t varying = varying_bits(bucket.keys, bucket.size);
    if (varying == 0) return;
    const auto key_of = [&, same = std::countl_zero(varying)](int64_t i) { return bucket.keys[i] << same; };
    SorterOf sorter(bucket.size, threads_);
    sorter.count_keys(bucket.size, key_of);
    sorter.place_keys(bucket.size, key_of, [&](int64_t i) { return bucket.ids[i]; });
    const auto sorted = std::get<Buffer<Id>>(sorter.finish());
    std::copy_n(sorted.data(), sorted.size(), bucket.ids);
  }

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
