// Sampling on a device against the CPU's sampler: the same batches, bit for bit, wherever the lists lie. Without a
// device it is skipped (exit 77).
#include <map>
#include <tiering/cuda/sampler.hpp>

#include "../cpp/check.hpp"
#include "../cpp/lists.hpp"
#include "device.hpp"
#ifdef TIERING_SIMULATED
#include <simulator.hpp>
#endif

using namespace tiering;
using namespace tiering::test;
using test::Csc;

namespace {

/// Memory of the device with a copy of what a vector holds.
template <typename T>
T* on_device(std::vector<cuda::DeviceMemory>& owners, const std::vector<T>& values) {
  auto& memory = owners.emplace_back(static_cast<int64_t>(std::max<size_t>(values.size(), 1) * sizeof(T)));
  cuda::check(cudaMemcpy(memory.data(), values.data(), values.size() * sizeof(T), cudaMemcpyDefault), "filling memory");
  return memory.as<T>();
}

/// Pinned memory with a copy.
template <typename T>
T* pinned(std::vector<cuda::PinnedMemory>& owners, const std::vector<T>& values) {
  auto& memory = owners.emplace_back(static_cast<int64_t>(std::max<size_t>(values.size(), 1) * sizeof(T)));
  std::copy(values.begin(), values.end(), memory.as<T>());
  return memory.as<T>();
}

struct Device {
  std::vector<cuda::DeviceMemory> memory;
  std::vector<cuda::PinnedMemory> host;

  template <typename Index>
  AdjacencyPart<Index> prefix(const std::vector<int64_t>& indptr, const std::vector<Index>& indices,
                              const std::vector<uint64_t>& sums, int64_t columns) {
    const int64_t edges = indptr[static_cast<size_t>(columns)];
    return {on_device(memory, std::vector(indptr.begin(), indptr.begin() + columns + 1)),
            on_device(memory, std::vector(indices.begin(), indices.begin() + edges)),
            sums.empty() ? nullptr : on_device(memory, std::vector(sums.begin(), sums.begin() + edges)), edges};
  }

  template <typename Index>
  AdjacencyTable<Index> spread(const std::vector<int64_t>& indptr, const std::vector<Index>& indices,
                               const std::vector<uint64_t>& sums, double share) {
    AdjacencyTable<Index> table;
    const auto columns = static_cast<int64_t>(indptr.size()) - 1;
    table.local_end = static_cast<int64_t>(share * static_cast<double>(columns));
    table.local = prefix(indptr, indices, sums, table.local_end);
    table.host = {pinned(host, indptr), pinned(host, indices), sums.empty() ? nullptr : pinned(host, sums),
                  static_cast<int64_t>(indices.size())};
    return table;
  }
};

struct Case {
  std::string name;
  Rule rule;
  std::vector<std::vector<int64_t>> fanouts;
  Frontier frontier;
  double local;  ///< share of each relation's columns in the memory of the GPU
};

/// A graph of two types and three relations: int32 and int64 ids, empty columns, parallel edges, weights with zeros.
struct Graph {
  std::vector<int64_t> num_nodes{900, 200};
  std::vector<std::pair<int, int>> ends{{0, 0}, {1, 0}, {0, 1}};
  std::vector<Csc> csc{test::random_csc(900, 900, 6000, 1, false), test::random_csc(200, 900, 2500, 2, true),
                       test::random_csc(900, 200, 900, 3, false)};
  std::vector<std::vector<float>> weights;
  std::vector<int64_t> keys;

  Graph() {
    std::mt19937_64 random(5);
    for (const auto& each : csc) {
      auto& of = weights.emplace_back();
      for (size_t e = 0; e < each.wide.size(); ++e)
        of.push_back(random() % 4 == 0 ? 0.0F : static_cast<float>(random() % 1000) / 64.0F);
    }
    keys.resize(900);
    std::iota(keys.begin(), keys.end(), int64_t{1} << 33);
    std::shuffle(keys.begin(), keys.end(), random);
  }

  RelationView view(size_t r, bool weighted) const {
    RelationView found = csc[r].view(ends[r].first, ends[r].second);
    if (weighted) found.weights = {weights[r].data(), static_cast<int64_t>(weights[r].size()), false};
    return found;
  }
};

template <typename T>
std::vector<T> read(const T* there, int64_t count) {
  std::vector<T> values(static_cast<size_t>(count));
  cuda::check(cudaMemcpy(values.data(), there, values.size() * sizeof(T), cudaMemcpyDefault), "reading memory");
  return values;
}

cuda::GpuSamplerConfig device_config(const Graph& graph, const Case& c, Device& device) {
  cuda::GpuSamplerConfig config;
  config.num_nodes = graph.num_nodes;
  config.fanouts = c.fanouts;
  config.only_new = c.frontier == Frontier::only_new;
  config.rule = c.rule;
  config.seed = 11;
  config.positions = true;
  const int64_t local_keys = 300;
  config.node_keys = {{on_device(device.memory, std::vector(graph.keys.begin(), graph.keys.begin() + local_keys)),
                       local_keys, pinned(device.host, graph.keys), true},
                      {}};
  for (size_t r = 0; r < graph.csc.size(); ++r) {
    const Csc& csc = graph.csc[r];
    std::vector<uint64_t> sums;
    if (c.rule == Rule::weighted) {
      const auto made =
          cumulative_weights(graph.view(r, true), static_cast<int64_t>(csc.indptr.size()) - 1, "relation", 1);
      sums.assign(made.data(), made.data() + csc.wide.size());
    }
    cuda::GpuRelation relation{graph.ends[r].first, graph.ends[r].second, {}};
    if (csc.narrow.empty())
      relation.table = device.spread(csc.indptr, csc.wide, sums, c.local);
    else
      relation.table = device.spread(csc.indptr, csc.narrow, sums, c.local);
    config.relations.push_back(relation);
  }
  return config;
}

/// The batch on the device is what the CPU's sampler gives.
void check_batch(cuda::GpuSampler& sampler, const SampledBatch& expected, std::vector<cuda::GpuSeeds> seeds,
                 uint64_t epoch, uint64_t batch, cudaStream_t stream) {
  sampler.start(seeds, epoch, batch, stream);
  const cuda::GpuBatchSizes sizes = sampler.finish();
  CHECK(sizes.num_nodes == expected.num_nodes);
  const size_t types = expected.nodes.size();
  for (size_t t = 0; t < types; ++t) {
    const int64_t count = sizes.num_nodes.back()[t];
    const cuda::DeviceMemory out((count + 1) * 8);
    sampler.write_nodes(static_cast<int>(t), out.as<int64_t>(), stream);
    cuda::check(cudaStreamSynchronize(stream), "writing nodes");
    const auto found = read(out.as<int64_t>(), count);
    CHECK(std::equal(found.begin(), found.end(), expected.nodes[t].begin(), expected.nodes[t].end()));
  }
  for (size_t h = 0; h < expected.hops.size(); ++h)
    for (size_t r = 0; r < expected.hops[h].size(); ++r) {
      const SampledEdges& edges = expected.hops[h][r];
      const int64_t count = sizes.num_edges[h][r];
      CHECK(count == edges.src.size());
      const cuda::DeviceMemory out((2 * count + 1) * 8), places((count + 1) * 8);
      sampler.write_edges(static_cast<int>(h), static_cast<int>(r), out.as<int64_t>(), stream);
      sampler.write_positions(static_cast<int>(h), static_cast<int>(r), places.as<int64_t>(), stream);
      cuda::check(cudaStreamSynchronize(stream), "writing edges");
      const auto found = read(out.as<int64_t>(), 2 * count), where = read(places.as<int64_t>(), count);
      CHECK(std::equal(edges.src.begin(), edges.src.end(), found.begin()));
      CHECK(std::equal(edges.dst.begin(), edges.dst.end(), found.begin() + count));
      CHECK(std::equal(edges.positions.begin(), edges.positions.end(), where.begin(), where.end()));
    }
}

SamplerConfig host_config(const Graph& graph, const Case& c) {
  SamplerConfig config;
  config.num_nodes = graph.num_nodes;
  config.fanouts = c.fanouts;
  config.frontier = c.frontier;
  config.rule = c.rule;
  config.seed = 11;
  config.node_keys = {{graph.keys.data(), 900, true}, {}};
  for (size_t r = 0; r < graph.csc.size(); ++r) config.relations.push_back(graph.view(r, c.rule == Rule::weighted));
  return config;
}

void test_case(const Case& c) {
  const Graph graph;
  Sampler there(host_config(graph, c));
  Device device;
  cuda::GpuSampler sampler(device_config(graph, c, device));
  const cuda::GpuStream stream;
  std::mt19937_64 random(23);
  for (uint64_t batch = 0; batch < 6; ++batch) {
    std::vector<int64_t> papers, authors;
    for (uint64_t i = 0; i < 3 + 40 * (batch % 3); ++i) papers.push_back(static_cast<int64_t>(random() % 900));
    if (batch % 2 == 1)
      for (int i = 0; i < 7; ++i) authors.push_back(static_cast<int64_t>(random() % 200));
    const SampledBatch expected = there.sample({papers, authors}, 4, batch, true);
    std::vector<cuda::DeviceMemory> owners;
    check_batch(sampler, expected,
                {{on_device(owners, papers), static_cast<int64_t>(papers.size())},
                 {on_device(owners, authors), static_cast<int64_t>(authors.size())}},
                4, batch, stream.get());
    stream.synchronize();
  }
  CHECK(sampler.device_bytes() > 0);
}

#ifdef TIERING_SIMULATED
/// A batch that finds too little memory at any of its allocations is given up; later ones are the CPU's all the same,
/// first a small one, which needs no more than what was there before.
void test_too_little_memory(const Case& c) {
  const Graph graph;
  Sampler there(host_config(graph, c));
  Device device;
  const cuda::GpuStream stream;
  std::vector<int64_t> papers(900);
  std::iota(papers.begin(), papers.end(), 0);
  const int64_t* const seeds = on_device(device.memory, papers);
  const auto given = [&](int64_t count) { return std::vector<cuda::GpuSeeds>{{seeds, count}, {}}; };
  const auto expected = [&](int64_t count) {
    return there.sample({{papers.data(), static_cast<size_t>(count)}, {}}, 0, 0, true);
  };
  const cuda::GpuSamplerConfig config = device_config(graph, c, device);
  const SampledBatch small = expected(2), large = expected(900);
  constexpr size_t kEnough = size_t{1} << 30;
  int failures = 0;
  for (size_t room = 0; room < kEnough; ++failures) {
    cuda::GpuSampler sampler(config);
    check_batch(sampler, small, given(2), 0, 0, stream.get());
    const size_t memory = simulator_live("bytes") + room;
    simulator_set_memory(memory);
    try {
      sampler.start(given(900), 0, 0, stream.get());
      room = kEnough;
    } catch (const cuda::OutOfMemory& error) {
      room += static_cast<size_t>(error.wanted() - error.free());  // it gets that far, and one allocation further
    }
    simulator_set_memory(kEnough);
    for (const auto& [count, batch] : {std::pair(2, &small), std::pair(900, &large)})
      check_batch(sampler, *batch, given(count), 0, 0, stream.get());
  }
  CHECK(failures > 15);
}
#endif

/// Seeds and adjacency that lead outside are named, nothing outside is written, and the next batch is sound again.
void test_faults() {
  Graph graph;
  const Case c{"faults", Rule::uniform, {{4, 4, 4}}, Frontier::all, 0.3};
  Device device;
  cuda::GpuSampler sampler(device_config(graph, c, device));
  const cuda::GpuStream stream;
  std::vector<cuda::DeviceMemory> owners;
  const std::vector<int64_t> good{5, 6, 7}, bad{5, 900, -1};
  const cuda::GpuSeeds none{}, sound{on_device(owners, good), 3}, wrong{on_device(owners, bad), 3};
  sampler.start({wrong, none}, 0, 0, stream.get());
  check_refused("seed 1", [&] { sampler.finish(); });
  sampler.start({sound, none}, 0, 0, stream.get());
  CHECK(sampler.finish().num_nodes[0][0] == 3);

  graph.csc[0].narrow[static_cast<size_t>(graph.csc[0].indptr[5])] = 900;
  Device worse;
  const Case all{"faults", Rule::uniform, {{-1, 0, 0}}, Frontier::all, 0};
  cuda::GpuSampler second(device_config(graph, all, worse));
  second.start({sound, none}, 0, 0, stream.get());
  check_refused("does not lead to a node", [&] { second.finish(); });

  graph.csc[0].indptr[6] = 1 << 30;
  Device third;
  auto config = device_config(Graph(), all, third);
  std::get<AdjacencyTable<int32_t>>(config.relations[0].table).host.begins = pinned(third.host, graph.csc[0].indptr);
  cuda::GpuSampler unsound(std::move(config));
  unsound.start({sound, none}, 0, 0, stream.get());
  check_refused("column 5", [&] { unsound.finish(); });
}

}  // namespace

int main() {
  if (no_device("test_sampler")) return kSkipped;
  const std::vector<std::vector<int64_t>> usual{{5, 3, 4}, {10, 2, 3}, {4, 0, 2}}, many{{60, 70, 50}, {2, 2, 2}},
      whole{{-1, -1, -1}, {2, -1, 0}};
  const std::map<Rule, std::string> rules{
      {Rule::uniform, "uniform"}, {Rule::replacement, "replacement"}, {Rule::weighted, "weighted"}};
  for (const auto& [rule, name] : rules)
    for (const auto& fanouts : {usual, many, whole})
      for (const Frontier frontier : {Frontier::all, Frontier::only_new})
        for (const double local : {0.0, 1.0, 0.2}) test_case({name, rule, fanouts, frontier, local});
#ifdef TIERING_SIMULATED
  for (const Rule rule : {Rule::uniform, Rule::weighted})
    for (const auto& fanouts : {usual, whole}) test_too_little_memory({"memory", rule, fanouts, Frontier::all, 0.2});
#endif
  test_faults();
  std::cout << "test_sampler: ok\n";
  return 0;
}
