// Layer-wise sampling against a verifier by another method: one edge at a time with sorted clocks. Run under
// ASan/UBSan and TSan.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "check.hpp"
#include "lists.hpp"
#include "tiering/errors.hpp"
#include "tiering/sampling/exponential.hpp"
#include "tiering/sampling/layer_hop.hpp"

using namespace tiering;
using namespace tiering::test;

namespace {

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

Layer layer_plainly(const Csc& csc, const HopTask& task, const std::vector<int64_t>& frontier_list,
                    std::vector<int64_t> known) {
  std::vector<int64_t> candidates;
  std::map<int64_t, double> importance;
  std::vector<int64_t> frontier(frontier_list.begin() + task.frontier_begin, frontier_list.begin() + task.frontier_end);
  for (const int64_t v : frontier)
    for (int64_t p = csc.indptr[static_cast<size_t>(v)]; p < csc.indptr[static_cast<size_t>(v) + 1]; ++p) {
      add(candidates, csc.index(p));
      importance[csc.index(p)] += 1.0 / (static_cast<double>(csc.degree(v)) * static_cast<double>(csc.degree(v)));
    }
  std::vector<std::pair<double, int64_t>> clocks;
  for (const int64_t u : candidates)
    clocks.emplace_back(exponential(Stream(task.stream, task.source_keys.key_of(u)).next()) / importance[u], u);
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
  HopTask task{.relation = &view,
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
  CHECK(
      std::equal(edges.positions.begin(), edges.positions.end(), expected.positions.begin(), expected.positions.end()));
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
  const HopTask task{.relation = &example.relations[0],
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

void test_counts() {
  const Example example;
  SamplerConfig config = example.config(Rule::ladies);
  config.fanouts = {{30, 4, 0}, {20, 0, 5}, {-1, 10, 10}};
  config.frontier = Frontier::only_new;
  Sampler sampler(config);
  const auto reads = checked_counts(sampler);
  CHECK(*std::min_element(reads.begin(), reads.end()) == 0 && *std::max_element(reads.begin(), reads.end()) > 5);
}

}  // namespace

int main() {
  test_exponential();
  test_layers();
  test_layer_on_bad_lists();
  test_counts();
  std::cout << "test_layers: ok\n";
  return 0;
}
