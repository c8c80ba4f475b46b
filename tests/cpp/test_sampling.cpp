// The sampler against a verifier by another method (std::map, one edge at a time), for thread counts 1, 2 and
// 7, and with many callers at once. Run under ASan/UBSan and TSan.
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "tiering/errors.hpp"
#include "tiering/sampling/draw.hpp"
#include "tiering/sampling/node_table.hpp"
#include "tiering/sampling/sampler.hpp"

using namespace tiering;

namespace {

struct Csc {
  std::vector<int64_t> indptr;
  std::vector<int32_t> indices;
  std::vector<int64_t> wide;
};

Csc random_csc(int64_t num_src, int64_t num_dst, int64_t edges, unsigned seed) {
  std::mt19937_64 random(seed);
  Csc csc;
  csc.indptr.assign(static_cast<size_t>(num_dst) + 1, 0);
  for (int64_t e = 0; e < edges; ++e) {
    const double x = static_cast<double>(random() >> 11) * 0x1p-53;  // skewed: some columns are long
    ++csc.indptr[static_cast<size_t>(x * x * static_cast<double>(num_dst)) + 1];
    csc.indices.push_back(static_cast<int32_t>(random() % static_cast<uint64_t>(num_src)));
  }
  std::partial_sum(csc.indptr.begin(), csc.indptr.end(), csc.indptr.begin());
  csc.wide.assign(csc.indices.begin(), csc.indices.end());
  return csc;
}

/// Two types and three relations; the second relation has 64-bit indices.
struct Example {
  std::vector<int64_t> num_nodes{3000, 400};
  Csc cites = random_csc(3000, 3000, 20000, 1);
  Csc writes = random_csc(400, 3000, 9000, 2);
  Csc written = random_csc(3000, 400, 9000, 3);

  SamplerConfig config(Frontier frontier) const {
    const auto size = [](const Csc& c) { return static_cast<int64_t>(c.indices.size()); };
    SamplerConfig config;
    config.num_nodes = num_nodes;
    config.relations = {{0, 0, cites.indptr.data(), {.narrow = cites.indices.data(), .size = size(cites)}},
                        {1, 0, writes.indptr.data(), {.wide = writes.wide.data(), .size = size(writes)}},
                        {0, 1, written.indptr.data(), {.narrow = written.indices.data(), .size = size(written)}}};
    config.fanouts = {{5, 3, 0}, {60, -1, 4}, {2, 2, 2}};
    config.frontier = frontier;
    config.node_keys.resize(2);
    config.seed = 11;
    return config;
  }
};

void verify(const SamplerConfig& config, const SampledBatch& batch) {
  std::vector<std::vector<int64_t>> known(config.num_nodes.size());
  std::vector<std::map<int64_t, int32_t>> local(known.size());
  const auto add = [&](size_t type, int64_t id) {
    const auto [at, is_new] = local[type].try_emplace(id, static_cast<int32_t>(known[type].size()));
    if (is_new) known[type].push_back(id);
    return at->second;
  };
  for (size_t t = 0; t < known.size(); ++t)
    for (int64_t i = 0; i < batch.num_nodes[0][t]; ++i) add(t, batch.nodes[t][i]);
  std::vector<int64_t> before(known.size(), 0);
  for (size_t hop = 0; hop < config.fanouts.size(); ++hop) {
    const std::vector<int64_t> now = batch.num_nodes[hop];
    for (size_t r = 0; r < config.relations.size(); ++r) {
      const auto& relation = config.relations[r];
      const auto& edges = batch.hops[hop][r];
      const auto src = static_cast<size_t>(relation.src_type), dst = static_cast<size_t>(relation.dst_type);
      const int64_t fanout = config.fanouts[hop][r];
      int64_t k = 0;
      for (int64_t i = config.frontier == Frontier::all ? 0 : before[dst]; i < now[dst] && fanout != 0; ++i) {
        const int64_t begin = relation.indptr[known[dst][static_cast<size_t>(i)]];
        const int64_t end = relation.indptr[known[dst][static_cast<size_t>(i)] + 1];
        std::set<int64_t> places;
        for (int64_t n = 0; n < UniformDraw::most(end - begin, fanout); ++n, ++k) {
          const int64_t place = edges.positions[k];
          CHECK(place >= begin && place < end && places.insert(place).second);
          const int64_t id = relation.indices.narrow ? relation.indices.narrow[place] : relation.indices.wide[place];
          CHECK(edges.dst[k] == i && edges.src[k] == add(src, id));
        }
      }
      CHECK(k == edges.src.size() && k == edges.dst.size() && k == edges.positions.size());
    }
    before = now;
    for (size_t t = 0; t < known.size(); ++t)
      CHECK(batch.num_nodes[hop + 1][t] == static_cast<int64_t>(known[t].size()));
  }
  for (size_t t = 0; t < known.size(); ++t)
    CHECK(std::equal(known[t].begin(), known[t].end(), batch.nodes[t].begin(), batch.nodes[t].end()));
}

void test_structure() {
  const Example example;
  for (const Frontier frontier : {Frontier::all, Frontier::only_new}) {
    Sampler sampler(example.config(frontier));
    std::vector<int64_t> papers(300), authors{3, 9, 3, 0};
    std::iota(papers.begin(), papers.end(), 1500);
    for (uint64_t b = 0; b < 3; ++b)
      verify(sampler.config(), sampler.sample({{papers.data(), 300}, {authors.data(), 4}}, 0, b, true));
    verify(sampler.config(), sampler.sample({{papers.data(), 1}, {nullptr, 0}}, 0, 7, true));
    verify(sampler.config(), sampler.sample({{nullptr, 0}, {nullptr, 0}}, 0, 8, true));
  }
}

std::vector<int64_t> flat(const SampledBatch& batch) {
  std::vector<int64_t> all;
  for (const auto& nodes : batch.nodes) all.insert(all.end(), nodes.begin(), nodes.end());
  for (const auto& hop : batch.hops)
    for (const auto& edges : hop) {
      all.insert(all.end(), edges.src.begin(), edges.src.end());
      all.insert(all.end(), edges.dst.begin(), edges.dst.end());
    }
  return all;
}

void test_many_callers() {
  const Example example;
  Sampler sampler(example.config(Frontier::all));
  std::vector<int64_t> papers(1000);
  std::iota(papers.begin(), papers.end(), 0);
  const auto sample = [&](int64_t b) {
    return flat(sampler.sample({{papers.data() + 50 * b, 50}, {nullptr, 0}}, 1, static_cast<uint64_t>(b), false));
  };
  std::vector<std::vector<int64_t>> alone, together(20);
  for (int64_t b = 0; b < 20; ++b) alone.push_back(sample(b));
  std::vector<std::thread> callers;
  for (int64_t t = 0; t < 4; ++t)
    callers.emplace_back([&, t] {
      for (int64_t b = t; b < 20; b += 4) together[static_cast<size_t>(b)] = sample(b);
    });
  for (auto& caller : callers) caller.join();
  CHECK(alone == together);
}

void test_counts() {
  const Example example;
  Sampler sampler(example.config(Frontier::only_new));
  std::vector<int64_t> papers(1000), offsets, none(21, 0);
  epoch_order(1000, 4, 2, papers.data());
  for (int64_t b = 0; b <= 20; ++b) offsets.push_back(50 * b);
  const auto count = [&](int threads) {
    std::vector<int64_t> counts(3000 + 400 + 3000 + 3000 + 400, 0);
    int64_t* c = counts.data();
    sampler.count_accesses({{papers.data(), nullptr}, {offsets.data(), none.data()}, {20, 20}}, 2, 3, 19,
                           {{c, c + 3000}, {c + 3400, c + 6400, c + 9400}}, threads);
    return counts;
  };
  const auto one = count(1);
  CHECK(one == count(2) && one == count(7));
  std::vector<int64_t> features(3400, 0);
  for (int64_t b = 3; b < 19; ++b) {
    const auto batch = sampler.sample({{papers.data() + 50 * b, 50}, {nullptr, 0}}, 2, static_cast<uint64_t>(b), false);
    for (const int64_t v : batch.nodes[0]) ++features[static_cast<size_t>(v)];
    for (const int64_t v : batch.nodes[1]) ++features[static_cast<size_t>(3000 + v)];
  }
  CHECK(std::equal(features.begin(), features.end(), one.begin()));
}

/// Ids that agree in their low 32 bits must stay apart, also when the table grows.
void test_table_of_wide_ids() {
  NodeTable table;
  for (int round = 0; round < 2; ++round) {
    table.start(int64_t{1} << 40);
    for (int64_t i = 0; i < 5000; ++i) {
      table.make_room(2);
      CHECK(table.insert(i % 5 << 32 | i / 5) == i);
      CHECK(table.insert(i % 5 << 32 | i / 5) == i);
    }
    CHECK(table.size() == 5000);
  }
}

void test_draws() {
  UniformDraw draw;
  for (const int64_t degree : {1, 2, 47, 48, 49, 50, 1000})
    for (const int64_t fanout : {-1, 1, 2, 47, 48, 49, 500, 999, 1000, 2000})
      for (uint64_t key = 0; key < 20; ++key) {
        std::vector<int64_t> out(static_cast<size_t>(UniformDraw::most(degree, fanout)));
        draw(100, degree, fanout, Stream(1, key), out.data());
        const std::set<int64_t> unique(out.begin(), out.end());
        CHECK(unique.size() == out.size() && *unique.begin() >= 100 && *unique.rbegin() < 100 + degree);
      }
}

void test_epoch_order() {
  std::vector<int64_t> order(1000), other(1000);
  epoch_order(1000, 1, 2, order.data());
  epoch_order(1000, 1, 3, other.data());
  CHECK(order != other);
  std::sort(order.begin(), order.end());
  for (int64_t i = 0; i < 1000; ++i) CHECK(order[static_cast<size_t>(i)] == i);
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

void test_bad_input() {
  Example example;
  Sampler sampler(example.config(Frontier::all));
  const int64_t bad_seed = 3000, seeds[] = {0, 1, 2};
  CHECK(message_of([&] { sampler.sample({{&bad_seed, 1}, {nullptr, 0}}, 0, 0, false); }).find("id 3000 is outside") !=
        std::string::npos);
  example.cites.indices[0] = 4000;
  CHECK(example.cites.indptr[1] > 60);
  auto config = example.config(Frontier::all);
  config.fanouts = {{-1, 0, 0}};
  Sampler whole(config);
  CHECK(message_of([&] {
          whole.sample({{seeds, 3}, {nullptr, 0}}, 0, 0, false);
        }).find("relation 0: indices[0]: source id 4000 is outside 0..2999") == 0);
  example.cites.indptr[1] = 1 << 30;
  CHECK(message_of([&] {
          whole.sample({{seeds, 3}, {nullptr, 0}}, 0, 0, false);
        }).find("relation 0: column 0: indptr says") == 0);
  config.fanouts = {{1, 2}};
  CHECK(message_of([&] { Sampler short_hop(config); }).find("fanouts: one entry per relation") == 0);
}

}  // namespace

int main() {
  test_draws();
  test_table_of_wide_ids();
  test_epoch_order();
  test_structure();
  test_many_callers();
  test_counts();
  test_bad_input();
  std::cout << "test_sampling: ok\n";
  return 0;
}
