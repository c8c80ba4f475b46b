// A small graph with awkward lists for the tests of sampling.
#pragma once

#include <numeric>
#include <random>

#include "tiering/sampling/sampler.hpp"

namespace tiering::test {

struct Csc {
  std::vector<int64_t> indptr;
  std::vector<int32_t> narrow;
  std::vector<int64_t> wide;

  RelationView view(int src, int dst) const {
    const void* const ids = narrow.empty() ? static_cast<const void*>(wide.data()) : narrow.data();
    return {src, dst, indptr.data(), {ids, static_cast<int64_t>(wide.size()), narrow.empty()}};
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
  IdSpan key_array() const { return {keys.data(), 900, false}; }

  SamplerConfig config(Rule rule) const {
    SamplerConfig config;
    config.num_nodes = num_nodes;
    config.relations = relations;
    config.rule = rule;
    config.node_keys = {key_array(), {}};
    return config;
  }
};

}  // namespace tiering::test
