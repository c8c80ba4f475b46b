// A small graph with awkward lists for the tests of walks and layers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "check.hpp"
#include "tiering/sampling/node_table.hpp"
#include "tiering/sampling/sampler.hpp"

namespace tiering::test {

struct Csc {
  std::vector<int64_t> indptr;
  std::vector<int32_t> narrow;
  std::vector<int64_t> wide;

  int64_t degree(int64_t v) const { return indptr[static_cast<size_t>(v) + 1] - indptr[static_cast<size_t>(v)]; }
  int64_t index(int64_t place) const {
    return narrow.empty() ? wide[static_cast<size_t>(place)] : narrow[static_cast<size_t>(place)];
  }
  RelationView view(int src, int dst) const {
    const IdArray ids{.narrow = narrow.empty() ? nullptr : narrow.data(),
                      .wide = narrow.empty() ? wide.data() : nullptr,
                      .size = static_cast<int64_t>(std::max(narrow.size(), wide.size()))};
    return {src, dst, indptr.data(), ids};
  }
};

/// Skewed columns, some of them empty; parallel edges occur.
inline Csc random_csc(int64_t num_src, int64_t num_dst, int64_t edges, unsigned seed, bool is_wide) {
  std::mt19937_64 random(seed);
  Csc csc;
  csc.indptr.assign(static_cast<size_t>(num_dst) + 1, 0);
  for (int64_t e = 0; e < edges; ++e) {
    const double x = static_cast<double>(random() >> 11) * 0x1p-53;
    ++csc.indptr[static_cast<size_t>(x * x * static_cast<double>(num_dst)) + 1];
    csc.wide.push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(num_src)));
  }
  std::partial_sum(csc.indptr.begin(), csc.indptr.end(), csc.indptr.begin());
  if (!is_wide) csc.narrow.assign(csc.wide.begin(), csc.wide.end());
  return csc;
}

/// 900 papers, 200 authors; random keys for the papers.
struct Example {
  std::vector<int64_t> num_nodes{900, 200};
  std::vector<Csc> csc{random_csc(900, 900, 6000, 1, false), random_csc(200, 900, 900, 2, true),
                       random_csc(900, 200, 900, 3, false)};
  std::vector<RelationView> relations{csc[0].view(0, 0), csc[1].view(1, 0), csc[2].view(0, 1)};
  std::vector<int32_t> keys;

  Example() {
    keys.resize(900);
    std::iota(keys.begin(), keys.end(), 0);
    std::shuffle(keys.begin(), keys.end(), std::mt19937(4));
  }
  IdArray key_array() const { return {.narrow = keys.data(), .size = 900}; }

  SamplerConfig config(Rule rule) const {
    SamplerConfig config;
    config.num_nodes = num_nodes;
    config.relations = relations;
    config.rule = rule;
    config.node_keys = {key_array(), {}};
    return config;
  }
};

inline void fill(NodeTable& table, int64_t num_nodes, int64_t count) {
  table.start(num_nodes);
  table.make_room(count);
  for (int64_t i = 0; i < count; ++i) table.insert(i * 7 % num_nodes);
}

inline std::vector<int64_t> list_of(const NodeTable& table) { return {table.nodes().begin(), table.nodes().end()}; }

/// Place of `id`, which is appended if it is new.
inline int32_t add(std::vector<int64_t>& known, int64_t id) {
  const auto at = std::find(known.begin(), known.end(), id);
  if (at != known.end()) return static_cast<int32_t>(at - known.begin());
  known.push_back(id);
  return static_cast<int32_t>(known.size()) - 1;
}

/// Counts of 20 batches by 1, 2 and 7 threads; features are those of the batches sampled one by one.
inline std::vector<int64_t> checked_counts(Sampler& sampler) {
  std::vector<int64_t> papers(600), offsets, none(21, 0);
  epoch_order(600, 4, 2, papers.data());
  for (int64_t b = 0; b <= 20; ++b) offsets.push_back(30 * b);
  const auto count = [&](int threads) {
    std::vector<int64_t> counts(900 + 200 + 900 + 900 + 200, 0);
    int64_t* c = counts.data();
    sampler.count_accesses({{papers.data(), nullptr}, {offsets.data(), none.data()}, {20, 20}}, 2, 0, 20,
                           {{c, c + 900}, {c + 1100, c + 2000, c + 2900}}, threads);
    return counts;
  };
  const auto one = count(1);
  CHECK(one == count(2) && one == count(7));
  std::vector<int64_t> features(1100, 0);
  for (int64_t b = 0; b < 20; ++b) {
    const auto batch = sampler.sample({{papers.data() + 30 * b, 30}, {nullptr, 0}}, 2, static_cast<uint64_t>(b), false);
    for (const int64_t v : batch.nodes[0]) ++features[static_cast<size_t>(v)];
    for (const int64_t v : batch.nodes[1]) ++features[static_cast<size_t>(900 + v)];
  }
  CHECK(std::equal(features.begin(), features.end(), one.begin()));
  return {one.begin() + 1100, one.end()};
}

}  // namespace tiering::test
