// Published splits are drawn by torch; this gives the same ids without it.
#include <numeric>
#include <random>
#include <tiering/sampling/torch_permutation.hpp>
#include <utility>

namespace tiering {

void torch_permutation(uint32_t seed, std::span<int64_t> order) {
  std::iota(order.begin(), order.end(), int64_t{0});
  std::mt19937 numbers(seed);
  for (size_t i = 0; i + 1 < order.size(); ++i) std::swap(order[i], order[i + numbers() % (order.size() - i)]);
}

}  // namespace tiering
