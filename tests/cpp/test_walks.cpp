// Random walks with restart against a verifier by another method: one walk at a time with std::map. Run under
// ASan/UBSan and TSan.
#include <algorithm>
#include <iostream>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "check.hpp"
#include "lists.hpp"
#include "tiering/errors.hpp"
#include "tiering/sampling/visit_counter.hpp"
#include "tiering/sampling/walk_hop.hpp"

using namespace tiering;
using namespace tiering::test;

namespace {

void test_visit_counter() {
  std::mt19937_64 random(1);
  std::vector<int64_t> keys(1000);
  std::iota(keys.rbegin(), keys.rend(), 5);
  VisitCounter counter;
  for (const int64_t size : {0, 1, 2, 40, 400, 5000})
    for (const int64_t range : {1, 3, 30, 1000})
      for (const int64_t k : {-1, 1, 3, 10, 999, 6000})
        for (const bool keyed : {false, true}) {
          std::vector<int64_t> ids;
          std::map<int64_t, int64_t> visits;
          for (int64_t i = 0; i < size; ++i)
            ids.push_back(static_cast<int64_t>(std::min(random(), random()) % static_cast<uint64_t>(range)));
          for (const int64_t id : ids) ++visits[id];
          std::vector<std::pair<int64_t, int64_t>> expected;  // (-visits, key)
          for (const auto& [id, n] : visits) expected.emplace_back(-n, keyed ? keys[static_cast<size_t>(id)] : id);
          std::sort(expected.begin(), expected.end());
          if (k >= 0 && k < static_cast<int64_t>(expected.size())) expected.resize(static_cast<size_t>(k));
          counter.run(ids.data(), size, k, keyed ? IdArray{.wide = keys.data(), .size = 1000} : IdArray{});
          CHECK(counter.top().size() == static_cast<int64_t>(expected.size()));
          for (size_t i = 0; i < expected.size(); ++i) {
            const Visited& found = counter.top()[static_cast<int64_t>(i)];
            CHECK(std::pair(-found.count, static_cast<int64_t>(found.key)) == expected[i]);
            CHECK(found.count == visits[found.id]);
          }
        }
}

struct Walked {
  std::vector<int64_t> known, src, dst;
  std::vector<float> weights;
  std::vector<std::vector<int64_t>> reads;
};

/// One walk after the other.
Walked walk_plainly(const Example& example, const HopTask& task, std::vector<int64_t> known) {
  Walked result{.known = {}, .src = {}, .dst = {}, .weights = {}, .reads = {}};
  for (const auto& relation : example.relations)
    result.reads.emplace_back(static_cast<size_t>(example.num_nodes[static_cast<size_t>(relation.dst_type)]));
  const WalkRule& rule = *task.rule;
  for (int64_t i = task.frontier_begin; i < task.frontier_end; ++i) {
    const int64_t start = known[static_cast<size_t>(i)];
    std::map<int64_t, int64_t> visits;
    for (int64_t w = 0; w < rule.num_walks; ++w) {
      Stream random(task.stream, task.destination_keys.key_of(start));
      random.skip(static_cast<uint64_t>(w * rule.walk_length) * (task.metapath->size() + 1));
      int64_t at = start;
      for (int64_t round = 0; round < rule.walk_length && at >= 0; ++round) {
        for (const int r : *task.metapath) {
          const Csc& csc = example.csc[static_cast<size_t>(r)];
          ++result.reads[static_cast<size_t>(r)][static_cast<size_t>(at)];
          const auto degree = static_cast<uint64_t>(csc.degree(at));
          if (degree == 0) {
            at = -1;
            break;
          }
          at = csc.index(csc.indptr[static_cast<size_t>(at)] + static_cast<int64_t>(random.below(degree)));
        }
        if (at < 0) break;
        ++visits[at];
        if (round + 1 < rule.walk_length && rule.restart > 0 && random.next() >> 11 < rule.restart) break;
      }
    }
    std::vector<std::pair<int64_t, int64_t>> order;  // (visits, id)
    for (const auto& [id, n] : visits) order.emplace_back(n, id);
    std::sort(order.begin(), order.end(), [&](const auto& a, const auto& b) {
      return a.first != b.first ? a.first > b.first
                                : task.source_keys.key_of(a.second) < task.source_keys.key_of(b.second);
    });
    if (task.fanout >= 0 && static_cast<int64_t>(order.size()) > task.fanout)
      order.resize(static_cast<size_t>(task.fanout));
    for (const auto& [n, id] : order) {
      result.src.push_back(add(known, id));
      result.dst.push_back(i);
      result.weights.push_back(static_cast<float>(n));
    }
  }
  result.known = known;
  return result;
}

void check_walk(const Example& example, const WalkRule& rule, int64_t fanout, WalkHop& hop) {
  NodeTable table;
  fill(table, 900, 100);
  std::vector<std::vector<int64_t>> reads{std::vector<int64_t>(900), std::vector<int64_t>(900),
                                          std::vector<int64_t>(200)};
  const std::vector<int64_t*> counters{reads[0].data(), reads[1].data(), reads[2].data()};
  SampledEdges edges;
  HopTask task{.relations = &example.relations,
               .num_nodes = &example.num_nodes,
               .rule = &rule,
               .metapath = &rule.metapaths[0],
               .destination_keys = example.key_array(),
               .source_keys = example.key_array(),
               .fanout = fanout,
               .stream = 99,
               .frontier_begin = 3,
               .frontier_end = 90,
               .sources = &table,
               .destinations = &table,
               .edges = &edges,
               .reads = &counters,
               .shared_reads = true};
  const Walked expected = walk_plainly(example, task, list_of(table));
  hop.run(task);
  CHECK(list_of(table) == expected.known);
  CHECK(std::equal(edges.src.begin(), edges.src.end(), expected.src.begin(), expected.src.end()));
  CHECK(std::equal(edges.dst.begin(), edges.dst.end(), expected.dst.begin(), expected.dst.end()));
  CHECK(std::equal(edges.weights.begin(), edges.weights.end(), expected.weights.begin(), expected.weights.end()));
  CHECK(reads == expected.reads);
  fill(table, 900, 100);  // again, without edges and counters
  task.edges = nullptr;
  task.reads = nullptr;
  hop.run(task);
  CHECK(list_of(table) == expected.known);
}

void test_walks() {
  const Example example;
  WalkHop hop;
  for (const auto& path : std::vector<std::vector<int>>{{0}, {1, 2}})
    for (const auto& [walks, length] :
         std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {1, 4}, {7, 3}, {200, 2}, {1000, 1}})
      for (const uint64_t restart : {uint64_t{0}, uint64_t{1} << 52, WalkRule::kCertain})
        for (const int64_t fanout : {1, 3, 10, 5000, -1})
          check_walk(example, {walks, length, restart, {path}}, fanout, hop);
}

void test_walk_rule_is_checked() {
  const Example example;
  const auto refused = [&](const std::string& words, const WalkRule& rule) {
    check_refused(words, [&] { check_walks(rule, example.relations); });
  };
  check_walks({200, 2, 0, {{0}, {1, 2}}}, example.relations);
  check_walks({200, 1, 0, {{1}}}, example.relations);
  refused("num_walks: expected 1", {0, 2, 0, {{0}}});
  refused("walk_length: expected 1", {5, 0, 0, {{0}}});
  refused("expected at most", {1 << 20, 1 << 10, 0, {{0}}});
  refused("restart: expected a probability", {5, 2, WalkRule::kCertain + 1, {{0}}});
  refused("metapath 0: expected at least one relation", {5, 2, 0, {{}}});
  refused("metapath 1: no relation 3", {5, 2, 0, {{0}, {3}}});
  refused("step 1 does not start where step 0 ends", {5, 2, 0, {{1, 0}}});
  refused("walk_length must be 1", {5, 2, 0, {{1}}});
}

void test_walk_on_bad_lists() {
  Example example;
  NodeTable table;
  fill(table, 900, 5);
  const WalkRule rule{3, 2, 0, {{0}}};
  WalkHop hop;
  const HopTask task{.relations = &example.relations,
                     .num_nodes = &example.num_nodes,
                     .rule = &rule,
                     .metapath = &rule.metapaths[0],
                     .destination_keys = {},
                     .source_keys = {},
                     .fanout = 3,
                     .stream = 1,
                     .frontier_begin = 0,
                     .frontier_end = 5,
                     .sources = &table,
                     .destinations = &table,
                     .edges = nullptr,
                     .reads = nullptr,
                     .shared_reads = false};
  std::fill(example.csc[0].narrow.begin(), example.csc[0].narrow.end(), 900);
  check_refused("source id 900 is outside 0..899", [&] { hop.run(task); });
  std::fill(example.csc[0].narrow.begin(), example.csc[0].narrow.end(), 5);
  example.csc[0].indptr[6] = 1 << 30;
  check_refused("column 5: indptr says", [&] { hop.run(task); });
  example = Example();  // the same walks go on after an error
  hop.run(task);
}

void test_counts() {
  const Example example;
  SamplerConfig config = example.config(Rule::pinsage);
  config.walks = {12, 3, uint64_t{1} << 51, {{0}, {1, 2}}};
  config.fanouts = {{3, 4}, {2, 0}, {0, 2}};
  Sampler sampler(config);
  const auto reads = checked_counts(sampler);
  CHECK(std::accumulate(reads.begin(), reads.begin() + 900, int64_t{0}) >= 600 * 12);
  CHECK(std::accumulate(reads.begin() + 900, reads.end(), int64_t{0}) >= 600 * 12);
}

}  // namespace

int main() {
  test_visit_counter();
  test_walks();
  test_walk_rule_is_checked();
  test_walk_on_bad_lists();
  test_counts();
  std::cout << "test_walks: ok\n";
  return 0;
}
