// Random graphs for the tests, and the slow obvious versions ("verifiers") the kernels are held against.
#pragma once

#include <numeric>
#include <random>
#include <tiering/graph.hpp>

namespace tiering::test {

/// Numbers of threads every kernel is tried with; the results must be equal.
inline const std::vector<int> kThreads{1, 2, 7};

template <typename T = int32_t>
struct EdgeList {
  int64_t num_src = 0, num_dst = 0;
  std::vector<T> src, dst;

  int64_t size() const { return static_cast<int64_t>(src.size()); }
};

/// Skewed ids, so that duplicates, isolated nodes and one very long column occur.
template <typename T = int32_t>
EdgeList<T> random_edges(int64_t num_src, int64_t num_dst, int64_t num_edges, uint64_t seed) {
  std::mt19937_64 random(seed);
  auto skewed = [&](int64_t n) {
    const auto bound = static_cast<uint64_t>(n);
    return static_cast<T>(std::min({random() % bound, random() % bound, random() % bound}));
  };
  EdgeList<T> edges{num_src, num_dst, {}, {}};
  for (int64_t k = 0; k < num_edges; ++k) {
    edges.src.push_back(skewed(num_src));
    edges.dst.push_back(k % 5 == 0 ? static_cast<T>(num_dst / 2) : skewed(num_dst));
  }
  return edges;
}

/// Adjacency in plain vectors.
struct PlainCsc {
  std::vector<int64_t> indptr, positions;
  std::vector<int32_t> indices;

  CscView view() const { return {indptr, {indices.data(), static_cast<int64_t>(indices.size()), false}}; }
  bool operator==(const PlainCsc&) const = default;
};

template <typename T>
std::vector<T> copied(const Buffer<T>& buffer) {
  return {buffer.data(), buffer.data() + buffer.size()};
}

/// Verifier of everything that groups: a stable sort of the entries by key, one comparison at a time.
inline PlainCsc grouped(const std::vector<int64_t>& keys, const std::vector<int64_t>& ids, int64_t num_keys) {
  PlainCsc out;
  out.positions.resize(keys.size());
  std::iota(out.positions.begin(), out.positions.end(), 0);
  std::stable_sort(out.positions.begin(), out.positions.end(),
                   [&](int64_t a, int64_t b) { return keys[static_cast<size_t>(a)] < keys[static_cast<size_t>(b)]; });
  for (const int64_t k : out.positions) out.indices.push_back(static_cast<int32_t>(ids[static_cast<size_t>(k)]));
  out.indptr.push_back(0);
  for (int64_t key = 0, k = 0; key < num_keys; ++key) {
    while (k < static_cast<int64_t>(keys.size()) &&
           keys[static_cast<size_t>(out.positions[static_cast<size_t>(k)])] == key)
      ++k;
    out.indptr.push_back(k);
  }
  return out;
}

template <typename T>
std::vector<int64_t> widened(const std::vector<T>& values) {
  return {values.begin(), values.end()};
}

template <typename T>
IdSpan span_of(const std::vector<T>& ids) {
  return {ids.data(), static_cast<int64_t>(ids.size()), sizeof(T) == 8};
}

}  // namespace tiering::test
