// Random walks and layer-wise sampling against verifiers by another method: one walk at a time with std::map,
// one edge at a time with sorted clocks. Run under ASan/UBSan and TSan.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "check.hpp"
#include "tiering/errors.hpp"
#include "tiering/sampling/exponential.hpp"
#include "tiering/sampling/layer_hop.hpp"
#include "tiering/sampling/visit_counter.hpp"
#include "tiering/sampling/walk_hop.hpp"

using namespace tiering;

namespace {

struct Csc {
  std::vector<int64_t> indptr;
  std::vector<int32_t> narrow;
  std::vector<int64_t> wide;

  int64_t degree(int64_t v) const {
    return indptr[static_cast<size_t>(v) + 1] - indptr[static_cast<size_t>(v)];
  }
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
Csc random_csc(int64_t num_src, int64_t num_dst, int64_t edges, unsigned seed, bool is_wide) {
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
};

void fill(NodeTable& table, int64_t num_nodes, int64_t count) {
  table.start(num_nodes);
  table.make_room(count);
  for (int64_t i = 0; i < count; ++i) table.insert(i * 7 % num_nodes);
}

std::vector<int64_t> list_of(const NodeTable& table) { return {table.nodes().begin(), table.nodes().end()}; }

/// Place of `id`, which is appended if it is new.
int32_t add(std::vector<int64_t>& known, int64_t id) {
  const auto at = std::find(known.begin(), known.end(), id);
  if (at != known.end()) return static_cast<int32_t>(at - known.begin());
  known.push_back(id);
  return static_cast<int32_t>(known.size()) - 1;
}

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
          for (const auto& [id, n] : visits)
            expected.emplace_back(-n, keyed ? keys[static_cast<size_t>(id)] : id);
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
Walked walk_plainly(const Example& example, const WalkTask& task, std::vector<int64_t> known) {
  Walked result{.known = {}, .src = {}, .dst = {}, .weights = {}, .reads = {}};
  for (const auto& relation : example.relations)
    result.reads.emplace_back(static_cast<size_t>(example.num_nodes[static_cast<size_t>(relation.dst_type)]));
  const WalkRule& rule = *task.rule;
  for (int64_t i = task.frontier_begin; i < task.frontier_end; ++i) {
    const int64_t start = known[static_cast<size_t>(i)];
    std::map<int64_t, int64_t> visits;
    for (int64_t w = 0; w < rule.num_walks; ++w) {
      Stream random(task.stream, task.start_keys.key_of(start));
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
                                : task.end_keys.key_of(a.second) < task.end_keys.key_of(b.second);
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
  WalkTask task{.relations = &example.relations,
                .num_nodes = &example.num_nodes,
                .rule = &rule,
                .metapath = &rule.metapaths[0],
                .start_keys = example.key_array(),
                .end_keys = example.key_array(),
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
  CHECK(std::equal(edges.weights.begin(), edges.weights.end(), expected.weights.begin(),
                   expected.weights.end()));
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
  const WalkTask task{.relations = &example.relations,
                      .num_nodes = &example.num_nodes,
                      .rule = &rule,
                      .metapath = &rule.metapaths[0],
                      .start_keys = {},
                      .end_keys = {},
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

void test_exponential() {
  std::mt19937_64 random(3);
  double sum = 0.0;
  for (int i = 0; i < 200000; ++i) {
    const uint64_t bits = i < 64 ? ~uint64_t{0} << i : i < 128 ? ~uint64_t{0} >> (i - 64) : random();
    const double u = (static_cast<double>(bits >> 12) + 0.5) * 0x1p-52;
    CHECK(std::abs(exponential(bits) + std::log(u)) <= 2e-15 * -std::log(u));
    sum += i < 128 ? 1.0 : exponential(bits);
  }
  CHECK(std::abs(sum / 200000 - 1.0) < 0.01);
  CHECK(exponential(0) < 37.0 && exponential(~uint64_t{0}) > 0.0);
}

struct Layer {
  std::vector<int64_t> known, src, dst, positions;
  std::vector<double> weights;
};

Layer layer_plainly(const Csc& csc, const LayerTask& task, const std::vector<int64_t>& frontier_list,
                    std::vector<int64_t> known) {
  std::vector<int64_t> candidates;
  std::map<int64_t, double> importance;
  std::vector<int64_t> frontier(frontier_list.begin() + task.frontier_begin,
                                frontier_list.begin() + task.frontier_end);
  for (const int64_t v : frontier)
    for (int64_t p = csc.indptr[static_cast<size_t>(v)]; p < csc.indptr[static_cast<size_t>(v) + 1]; ++p) {
      add(candidates, csc.index(p));
      importance[csc.index(p)] +=
          1.0 / (static_cast<double>(csc.degree(v)) * static_cast<double>(csc.degree(v)));
    }
  std::vector<std::pair<double, int64_t>> clocks;
  for (const int64_t u : candidates)
    clocks.emplace_back(exponential(Stream(task.stream, task.source_keys.key_of(u)).next()) / importance[u],
                        u);
  std::sort(clocks.begin(), clocks.end());
  if (task.fanout >= 0 && static_cast<int64_t>(clocks.size()) > task.fanout)
    clocks.resize(static_cast<size_t>(task.fanout));
  std::set<int64_t> kept(known.begin(), known.begin() + task.known);
  for (const auto& [at, u] : clocks) kept.insert(u);
  for (const int64_t u : candidates)
    if (kept.contains(u)) add(known, u);
  Layer layer;
  for (size_t i = 0; i < frontier.size(); ++i) {
    double sum = 0.0;
    const size_t first = layer.src.size();
    const int64_t v = frontier[i];
    for (int64_t p = csc.indptr[static_cast<size_t>(v)]; p < csc.indptr[static_cast<size_t>(v) + 1]; ++p)
      if (const int64_t u = csc.index(p); kept.contains(u)) {
        layer.src.push_back(add(known, u));
        layer.dst.push_back(task.frontier_begin + static_cast<int64_t>(i));
        layer.positions.push_back(p);
        layer.weights.push_back(1.0 / (static_cast<double>(csc.degree(v)) * importance[u]));
        sum += layer.weights.back();
      }
    for (size_t k = first; k < layer.src.size(); ++k) layer.weights[k] /= sum;
  }
  layer.known = known;
  return layer;
}

void check_layer(const Example& example, size_t relation, int64_t fanout, int64_t known, LayerHop& hop) {
  const Csc& csc = example.csc[relation];
  const RelationView& view = example.relations[relation];
  NodeTable papers, authors;
  fill(papers, 900, 300);
  fill(authors, 200, 20);
  NodeTable& sources = view.src_type == 0 ? papers : authors;
  NodeTable& destinations = view.dst_type == 0 ? papers : authors;
  SampledEdges edges;
  LayerTask task{.relation = &view,
                 .num_src = example.num_nodes[static_cast<size_t>(view.src_type)],
                 .source_keys = view.src_type == 0 ? example.key_array() : IdArray{},
                 .fanout = fanout,
                 .stream = 17,
                 .frontier_begin = 5,
                 .frontier_end = 20,
                 .known = known,
                 .sources = &sources,
                 .destinations = &destinations,
                 .edges = &edges,
                 .want_positions = true};
  const Layer expected = layer_plainly(csc, task, list_of(destinations), list_of(sources));
  hop.run(task);
  CHECK(list_of(sources) == expected.known);
  CHECK(std::equal(edges.src.begin(), edges.src.end(), expected.src.begin(), expected.src.end()));
  CHECK(std::equal(edges.dst.begin(), edges.dst.end(), expected.dst.begin(), expected.dst.end()));
  CHECK(std::equal(edges.positions.begin(), edges.positions.end(), expected.positions.begin(),
                   expected.positions.end()));
  CHECK(edges.weights.size() == edges.src.size());
  for (int64_t k = 0; k < edges.weights.size(); ++k)
    CHECK(std::abs(edges.weights[k] - expected.weights[static_cast<size_t>(k)]) < 1e-6);
  fill(papers, 900, 300);
  fill(authors, 200, 20);
  task.edges = nullptr;
  hop.run(task);
  CHECK(list_of(sources) == expected.known);
}

void test_layers() {
  const Example example;
  LayerHop hop;
  for (const size_t relation : {0, 1, 2})
    for (const int64_t fanout : {1, 5, 40, 5000, -1})
      for (const int64_t known : {0, 20}) check_layer(example, relation, fanout, known, hop);
}

void test_layer_on_bad_lists() {
  Example example;
  NodeTable table;
  fill(table, 900, 300);
  LayerHop hop;
  const LayerTask task{.relation = &example.relations[0],
                       .num_src = 900,
                       .source_keys = {},
                       .fanout = 3,
                       .stream = 1,
                       .frontier_begin = 0,
                       .frontier_end = 300,
                       .known = 300,
                       .sources = &table,
                       .destinations = &table,
                       .edges = nullptr,
                       .want_positions = false};
  example.csc[0].narrow[10] = -4;
  check_refused("indices[10]: source id -4 is outside 0..899", [&] { hop.run(task); });
  example.csc[0].narrow[10] = 4;
  example.csc[0].indptr[6] = int64_t{1} << 60;
  check_refused("indptr says", [&] { hop.run(task); });
}

}  // namespace

int main() {
  test_visit_counter();
  test_walks();
  test_walk_rule_is_checked();
  test_walk_on_bad_lists();
  test_exponential();
  test_layers();
  test_layer_on_bad_lists();
  std::cout << "test_walks: ok\n";
  return 0;
}
