// The GPU's sampler on the simulated device, given a damaged graph.
#pragma once

#include <tiering/cuda/sampler.hpp>

#include "samplers.hpp"

namespace tiering::test {

/// Copies in memory of the device.
class DeviceCopies {
 public:
  template <typename T>
  const T* of(const T* values, int64_t count) {
    const auto bytes = static_cast<size_t>(count) * sizeof(T);
    auto& memory = owners_.emplace_back(static_cast<int64_t>(std::max<size_t>(bytes, 1)));
    if (bytes > 0) cuda::check(cudaMemcpy(memory.data(), values, bytes, cudaMemcpyDefault), "filling memory");
    return memory.as<T>();
  }
  template <typename T>
  const T* of(const std::vector<T>& values) {
    return of(values.data(), size_of(values));
  }

 private:
  std::vector<cuda::DeviceMemory> owners_;
};

/// All columns in host memory, and those below local_end on the device too.
template <typename Index>
AdjacencyTable<Index> device_table(DeviceCopies& copies, const DamagedRelation& r, const std::vector<Index>& indices,
                                   const uint64_t* sums, int64_t local_end) {
  AdjacencyTable<Index> table;
  table.local_end = local_end;
  table.host = {copies.of(r.indptr), copies.of(indices), sums == nullptr ? nullptr : copies.of(sums, r.num_edges()),
                r.num_edges()};
  table.local = table.host;
  return table;
}

inline cuda::GpuSamplerConfig device_config(DeviceCopies& copies, const DamagedGraph& graph,
                                            const SamplerConfig& config, Rule rule, Luck& luck) {
  cuda::GpuSamplerConfig made{.num_nodes = config.num_nodes,
                              .relations = {},
                              .fanouts = config.fanouts,
                              .only_new = config.frontier == Frontier::only_new,
                              .rule = rule,
                              .node_keys = {},
                              .seed = config.seed,
                              .positions = luck.once_in(2)};
  for (const auto& keys : graph.keys) {
    const int64_t* const there = copies.of(keys);
    made.node_keys.push_back({there, size_of(keys) / 2, there, true});
  }
  for (const auto& r : graph.relations) {
    const auto columns = size_of(r.indptr) - 1, local_end = luck.below(columns + 1);
    Buffer<uint64_t> sums;
    if (rule == Rule::weighted) sums = cumulative_weights(r.view(), columns, "relation", 1);
    cuda::GpuRelation relation{r.src, r.dst, {}};
    if (r.is_wide)
      relation.table = device_table(copies, r, r.wide, sums.data(), local_end);
    else
      relation.table = device_table(copies, r, r.narrow, sums.data(), local_end);
    made.relations.push_back(relation);
  }
  return made;
}

inline void sample_on_device(Referee& referee, const DamagedGraph& graph, Luck& luck) {
  const auto rule = luck.of<Rule>({Rule::uniform, Rule::replacement, Rule::weighted});
  const bool sound = graph.sound() && (rule != Rule::weighted || graph.weights_sound());
  SamplerConfig config = random_config(graph, Rule::uniform, luck);
  config.disjoint = config.induced = false;  // of the host alone
  const Seeds seeds(graph, 1, luck);
  referee.run("sampler of a device", at_least(sound), [&] {
    DeviceCopies copies;
    cuda::GpuSampler sampler(device_config(copies, graph, config, rule, luck));
    const cuda::GpuStream stream;
    std::vector<cuda::GpuSeeds> given;
    for (const auto& list : seeds.ids) given.push_back({copies.of(list), size_of(list)});
    sampler.start(given, 1, 2, stream.get());
    const cuda::GpuBatchSizes sizes = sampler.finish();
    for (size_t t = 0; t < graph.num_nodes.size(); ++t) {
      std::vector<int64_t> nodes(static_cast<size_t>(sizes.num_nodes.back()[t]));
      sampler.write_nodes(static_cast<int>(t), nodes.data(), stream.get());
      stream.synchronize();
      for (const int64_t id : nodes)
        referee.require(id >= 0 && id < graph.num_nodes[t], "a node sampled on a device is no node");
    }
  });
}

}  // namespace tiering::test
