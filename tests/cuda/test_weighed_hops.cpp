// Random walks and layers on a device against the CPU's sampler: the same nodes, edges and weights, bit for bit. Where
// lists may lie is test_sampler's; here they lie in host memory. Without a device it is skipped (exit 77).
#include <algorithm>
#include <cstring>
#include <iostream>
#include <random>
#include <string>
#include <tiering/cuda/memory.hpp>
#include <tiering/cuda/sampler.hpp>
#include <tiering/sampling/sampler.hpp>
#include <vector>

#include "../cpp/lists.hpp"
#include "device.hpp"

using namespace tiering;
using namespace tiering::test;

namespace {

/// Pinned memory with a copy of what a vector holds.
template <typename T>
T* pinned(std::vector<cuda::PinnedMemory>& owners, const std::vector<T>& values) {
  auto& memory = owners.emplace_back(static_cast<int64_t>(std::max<size_t>(values.size(), 1) * sizeof(T)));
  std::copy(values.begin(), values.end(), memory.as<T>());
  return memory.as<T>();
}

/// What the device wrote, in host memory; `write` takes its address and a stream.
template <typename T, typename Write>
std::vector<T> written(int64_t count, Write write) {
  const cuda::PinnedMemory memory((count + 1) * static_cast<int64_t>(sizeof(T)));
  const cuda::GpuStream stream;
  write(memory.as<T>(), stream.get());
  stream.synchronize();
  return {memory.as<T>(), memory.as<T>() + count};
}

template <typename T, typename Array>
bool same_bits(const std::vector<T>& found, const Array& expected) {
  return static_cast<int64_t>(found.size()) == expected.size() &&
         (found.empty() || std::memcmp(found.data(), expected.data(), found.size() * sizeof(T)) == 0);
}

/// A case of both samplers over `Example`, whose second relation has ids of 64 bits.
struct Case {
  Rule rule;
  std::vector<std::vector<int64_t>> fanouts;
  WalkRule walks = {};
  int64_t visits_at_a_time = int64_t{1} << 21;
};

cuda::GpuSamplerConfig device_config(const Example& example, const Case& c, Frontier frontier,
                                     std::vector<cuda::PinnedMemory>& owners) {
  cuda::GpuSamplerConfig config;
  config.num_nodes = example.num_nodes;
  config.fanouts = c.fanouts;
  config.only_new = frontier == Frontier::only_new;
  config.rule = c.rule == Rule::pinsage ? cuda::DrawRule::pinsage : cuda::DrawRule::ladies;
  config.walks = c.walks;
  config.visits_at_a_time = c.visits_at_a_time;
  config.seed = 11;
  config.positions = c.rule == Rule::ladies;
  config.node_keys = {{nullptr, 0, pinned(owners, example.keys), false}, {}};
  for (size_t r = 0; r < example.csc.size(); ++r) {
    const Csc& csc = example.csc[r];
    const int64_t* const begins = pinned(owners, csc.indptr);
    const auto edges = static_cast<int64_t>(csc.wide.size());
    cuda::GpuRelation relation{example.relations[r].src_type, example.relations[r].dst_type, {}};
    if (csc.narrow.empty())
      relation.table =
          AdjacencyTable<int64_t>{.local = {}, .host = {begins, pinned(owners, csc.wide), nullptr, nullptr, edges}};
    else
      relation.table =
          AdjacencyTable<int32_t>{.local = {}, .host = {begins, pinned(owners, csc.narrow), nullptr, nullptr, edges}};
    config.relations.push_back(relation);
  }
  return config;
}

/// The finished batch is what the CPU's sampler gives.
void check_batch(const cuda::GpuSampler& sampler, const cuda::GpuBatchSizes& sizes, const SampledBatch& expected) {
  CHECK(sizes.num_nodes == expected.num_nodes);
  for (size_t t = 0; t < expected.nodes.size(); ++t)
    CHECK(same_bits(written<int64_t>(sizes.num_nodes.back()[t],
                                     [&](int64_t* out, cudaStream_t stream) {
                                       sampler.write_nodes(static_cast<int>(t), out, stream);
                                     }),
                    expected.nodes[t]));
  for (size_t h = 0; h < expected.hops.size(); ++h)
    for (size_t g = 0; g < expected.hops[h].size(); ++g) {
      const auto hop = static_cast<int>(h), group = static_cast<int>(g);
      const SampledEdges& edges = expected.hops[h][g];
      const int64_t count = sizes.num_edges[h][g];
      CHECK(count == edges.src.size());
      const auto ends = written<int64_t>(
          2 * count, [&](int64_t* out, cudaStream_t stream) { sampler.write_edges(hop, group, out, stream); });
      CHECK(std::equal(edges.src.begin(), edges.src.end(), ends.begin()));
      CHECK(std::equal(edges.dst.begin(), edges.dst.end(), ends.begin() + count));
      CHECK(same_bits(
          written<float>(count,
                         [&](float* out, cudaStream_t stream) { sampler.write_weights(hop, group, out, stream); }),
          edges.weights));
      if (sampler.config().positions)
        CHECK(same_bits(
            written<int64_t>(
                count, [&](int64_t* out, cudaStream_t stream) { sampler.write_positions(hop, group, out, stream); }),
            edges.positions));
    }
}

void test_case(const Case& c, Frontier frontier) {
  const Example example;
  SamplerConfig config;
  config.num_nodes = example.num_nodes;
  config.relations = example.relations;
  config.fanouts = c.fanouts;
  config.frontier = frontier;
  config.rule = c.rule;
  config.walks = c.walks;
  config.node_keys = {example.key_array(), {}};
  config.seed = 11;
  Sampler there(config);
  std::vector<cuda::PinnedMemory> owners;
  cuda::GpuSampler sampler(device_config(example, c, frontier, owners));
  const cuda::GpuStream stream;
  std::mt19937_64 random(23);
  for (uint64_t batch = 0; batch < 4; ++batch) {
    std::vector<int64_t> papers, authors;
    for (uint64_t i = 0; i < 3 + 20 * (batch % 3); ++i) papers.push_back(static_cast<int64_t>(random() % 900));
    if (batch % 2 == 1)
      for (int i = 0; i < 7; ++i) authors.push_back(static_cast<int64_t>(random() % 200));
    const auto size = [](const std::vector<int64_t>& ids) { return static_cast<int64_t>(ids.size()); };
    std::vector<cuda::PinnedMemory> seeds;
    sampler.start({{pinned(seeds, papers), size(papers)}, {pinned(seeds, authors), size(authors)}}, 4, batch,
                  stream.get());
    const cuda::GpuBatchSizes sizes = sampler.finish();
    check_batch(sampler, sizes,
                there.sample({{papers.data(), size(papers)}, {authors.data(), size(authors)}}, 4, batch,
                             sampler.config().positions));
  }
  CHECK(sampler.device_bytes() > 0);
}

/// Adjacency that leads outside is named, nothing outside is written, and the next batch is sound again.
void test_faults(const Case& c) {
  Example example;
  for (int64_t e = example.csc[0].indptr[5]; e < example.csc[0].indptr[6]; ++e)
    example.csc[0].narrow[static_cast<size_t>(e)] = e % 2 == 0 ? 900 : -1;
  std::vector<cuda::PinnedMemory> owners;
  cuda::GpuSampler sampler(device_config(example, c, Frontier::all, owners));
  const cuda::GpuStream stream;
  const auto sample = [&](int64_t seed) {
    sampler.start({{pinned(owners, std::vector{seed}), 1}, {}}, 0, 0, stream.get());
    return sampler.finish();
  };
  check_refused("leads to no node", [&] { sample(5); });
  CHECK(sample(899).num_nodes[0][0] == 1);
  check_refused("seed 0", [&] { sample(900); });

  example.csc[0].indptr[6] = 1 << 30;
  cuda::GpuSampler unsound(device_config(example, c, Frontier::all, owners));
  unsound.start({{pinned(owners, std::vector<int64_t>{5}), 1}, {}}, 0, 0, stream.get());
  check_refused("column 5", [&] { unsound.finish(); });
}

/// An edge from a type that has no nodes: there is no node 0 to go on with either.
void test_no_sources(const Case& c) {
  std::vector<cuda::PinnedMemory> owners;
  const Example example;
  cuda::GpuSamplerConfig config = device_config(example, c, Frontier::all, owners);
  config.num_nodes[0] = 900, config.num_nodes[1] = 0;
  config.walks.metapaths = {{1}};
  config.fanouts = c.rule == Rule::pinsage ? std::vector<std::vector<int64_t>>{{2}, {2}}
                                           : std::vector<std::vector<int64_t>>{{0, 2, 0}, {0, 2, 2}};
  cuda::GpuSampler sampler(config);
  const cuda::GpuStream stream;
  sampler.start({{pinned(owners, std::vector<int64_t>{0, 1, 2, 3, 4, 5}), 6}, {}}, 0, 0, stream.get());
  check_refused("leads to no node", [&] { sampler.finish(); });
}

}  // namespace

int main() {
  if (no_device("test_weighed_hops")) return kSkipped;
  const WalkRule papers{9, 3, WalkRule::kCertain / 3, {{0}, {1, 2}}}, ends{4, 1, 0, {{0, 1}, {2}}};
  const std::vector<Case> cases{
      {Rule::pinsage, {{5, 3}, {2, 4}}, papers},
      {Rule::pinsage, {{5, 3}, {2, -1}}, papers, 100},  // turns of three frontier nodes
      {Rule::pinsage, {{-1, 0}, {3, 3}}, ends, 1},
      {Rule::ladies, {{30, 10, 20}, {50, 20, 0}}},
      {Rule::ladies, {{1, -1, 2}, {-1, 300, 5}}},
  };
  for (const Case& c : cases)
    for (const Frontier frontier : {Frontier::all, Frontier::only_new}) test_case(c, frontier);
  const Case walk{Rule::pinsage, {{3}}, {50, 1, 0, {{0}}}}, layer{Rule::ladies, {{2, 0, 0}}};
  for (const Case& c : {walk, layer}) {
    test_faults(c);
    test_no_sources(c);
  }
  std::cout << "test_weighed_hops: ok\n";
  return 0;
}
