// Keys by the range in which they lie, against asking every range for every key.
#include <limits>
#include <tiering/reorder.hpp>

#include "check.hpp"
#include "graphs.hpp"

using namespace tiering;
using namespace tiering::test;

namespace {

struct Parts {
  std::vector<int64_t> order, counts;
  bool operator==(const Parts&) const = default;
};

Parts plain(const KeyParts& parts) {
  const auto order = std::visit([](const auto& each) { return widened(copied(each)); }, parts.order);
  return {order, copied(parts.counts)};
}

template <typename T>
Parts expected_parts(const std::vector<T>& keys, const std::vector<int64_t>& bounds) {
  Parts parts;
  for (size_t j = 0; j + 1 < bounds.size(); ++j) {
    const size_t before = parts.order.size();
    for (size_t k = 0; k < keys.size(); ++k)
      if (keys[k] >= bounds[j] && keys[k] < bounds[j + 1]) parts.order.push_back(static_cast<int64_t>(k));
    parts.counts.push_back(static_cast<int64_t>(parts.order.size() - before));
  }
  return parts;
}

template <typename T>
void test_keys(const std::vector<T>& keys, const std::vector<int64_t>& bounds) {
  const Parts expected = expected_parts(keys, bounds);
  for (const int threads : kThreads) {
    const KeyParts narrow = partition_keys(span_of(keys), bounds, threads);
    CHECK(std::holds_alternative<Buffer<uint32_t>>(narrow.order) && plain(narrow) == expected);
    const auto size = static_cast<int64_t>(keys.size());
    const KeyParts wide = partition_keys(span_of(keys), bounds, threads, size);
    CHECK(std::holds_alternative<Buffer<int64_t>>(wide.order) && plain(wide) == expected);
    CHECK(partition_keys(span_of(keys), bounds, threads, size + 1).order.index() == 0);
  }
}

/// Keys in a span, of which some are in one place.
template <typename T>
std::vector<T> random_keys(int64_t first, int64_t end, int64_t count) {
  std::mt19937_64 random(static_cast<uint64_t>(count));
  std::vector<T> keys;
  const uint64_t width = static_cast<uint64_t>(end) - static_cast<uint64_t>(first);
  for (int64_t k = 0; k < count; ++k) {
    const uint64_t offset = k % 3 == 0 ? width / 2 : random() % width;
    keys.push_back(static_cast<T>(static_cast<uint64_t>(first) + offset));
  }
  return keys;
}

void test_ranges() {
  const int64_t count = 60000;  // for three threads
  test_keys(random_keys<int32_t>(0, 100000, count), {0, 100000});
  test_keys(random_keys<int64_t>(-70, 100, count), {-70, -70, -3, 0, 1, 1, 1, 50, 99, 100, 100});
  test_keys(random_keys<int32_t>(5, 6, count), {5, 5, 6, 6});
  std::vector<int64_t> close{0};  // many ranges in one cell, and one that spans nearly all
  for (int64_t j = 0; j < 300; ++j) close.push_back((int64_t{1} << 40) + j * j);
  close.push_back(int64_t{1} << 41);
  auto keys = random_keys<int64_t>(close[1], close[300] + 9, count);
  for (const int64_t bound : close)
    for (const int64_t key : {bound - 1, bound})
      if (key >= 0 && key < close.back()) keys.push_back(key);
  test_keys(keys, close);
  const int64_t lowest = std::numeric_limits<int64_t>::min(), highest = std::numeric_limits<int64_t>::max();
  test_keys(std::vector<int64_t>{highest - 1, 0, lowest, -1, 7}, {lowest, -1, 0, highest});
  test_keys(std::vector<int32_t>{std::numeric_limits<int32_t>::min(), -1, std::numeric_limits<int32_t>::max()},
            {lowest, -1, highest});
}

void test_few() {
  for (const std::vector<int64_t>& bounds : std::vector<std::vector<int64_t>>{{3}, {3, 3}, {0, 5}}) {
    const KeyParts parts = partition_keys(span_of(std::vector<int64_t>{}), bounds, 2);
    CHECK(plain(parts) == (Parts{{}, std::vector<int64_t>(bounds.size() - 1, 0)}));
  }
}

}  // namespace

int main() {
  test_ranges();
  test_few();
  std::cout << "test_key_parts: ok\n";
  return 0;
}
