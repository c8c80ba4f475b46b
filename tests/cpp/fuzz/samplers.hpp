// The samplers of the processor, given a damaged graph.
#pragma once

#include <numeric>

#include "damaged_graph.hpp"
#include "referee.hpp"

namespace tiering::test {

/// Ids of nodes of each type, and how an epoch cuts them into batches.
struct Seeds {
  std::vector<std::vector<int64_t>> ids, offsets;

  Seeds(const DamagedGraph& graph, int64_t batches, Luck& luck) {
    for (const int64_t n : graph.num_nodes) {
      auto& list = ids.emplace_back();
      auto& cuts = offsets.emplace_back(1, 0);
      for (int64_t b = 0; b < batches; ++b) {
        for (int64_t i = luck.below(30); i > 0 && n > 0; --i) list.push_back(luck.below(n));
        cuts.push_back(size_of(list));
      }
    }
  }
  BatchSeeds all() const { return {ids.begin(), ids.end()}; }
  EpochSeeds epoch() const { return {{ids.begin(), ids.end()}, {offsets.begin(), offsets.end()}}; }
};

/// Metapaths of one or two relations; rounds repeat where each comes back to its start.
inline WalkRule random_walks(const DamagedGraph& graph, Luck& luck) {
  WalkRule walks{1 + luck.below(20), 1 + luck.below(4), luck.once_in(2) ? 0 : WalkRule::kCertain / 3, {}};
  for (int64_t m = 1 + luck.below(2); m > 0; --m) {
    std::vector<int>& path = walks.metapaths.emplace_back();
    path.push_back(static_cast<int>(luck.below(size_of(graph.relations))));
    const DamagedRelation& first = graph.relations[static_cast<size_t>(path[0])];
    const auto next = static_cast<size_t>(luck.below(size_of(graph.relations)));
    int end = first.src;
    if (graph.relations[next].dst == end) {
      path.push_back(static_cast<int>(next));
      end = graph.relations[next].src;
    }
    if (end != first.dst) walks.walk_length = 1;
  }
  return walks;
}

inline SamplerConfig random_config(const DamagedGraph& graph, Rule rule, Luck& luck) {
  SamplerConfig config;
  config.num_nodes = graph.num_nodes;
  config.rule = rule;
  config.frontier = luck.once_in(2) ? Frontier::all : Frontier::only_new;
  config.seed = static_cast<uint64_t>(luck.below(1000));
  if (rule == Rule::pinsage) config.walks = random_walks(graph, luck);
  config.disjoint = rule < Rule::pinsage && luck.once_in(3);
  config.induced = rule < Rule::pinsage && luck.once_in(3);
  for (const auto& r : graph.relations) config.relations.push_back(r.view());
  for (const auto& keys : graph.keys) config.node_keys.push_back({keys.data(), size_of(keys), true});
  for (int64_t hop = 1 + luck.below(3); hop > 0; --hop) {
    auto& fanouts = config.fanouts.emplace_back();
    for (size_t g = 0; g < config.num_groups(); ++g)
      fanouts.push_back(luck.of<int64_t>({-1, 0, 1, 2, 3, 5, 5, 10, 60}));
  }
  return config;
}

/// What came out lies within the graph.
inline void check_batch(const Referee& referee, const DamagedGraph& graph, const SamplerConfig& config,
                        const SampledBatch& batch) {
  for (size_t t = 0; t < batch.nodes.size(); ++t)
    for (const int64_t id : batch.nodes[t])
      referee.require(id >= 0 && id < graph.num_nodes[t], "a sampled node is no node");
  for (const auto& hop : batch.hops)
    for (size_t g = 0; g < hop.size(); ++g) {
      for (const int32_t local : hop[g].src)
        referee.require(local >= 0 && local < batch.nodes[config.src_type(g)].size(), "a source is no node");
      for (const int32_t local : hop[g].dst)
        referee.require(local >= 0 && local < batch.nodes[config.dst_type(g)].size(), "a target is no node");
      for (const int64_t place : hop[g].positions)
        referee.require(place >= 0 && place < graph.relations[g].num_edges(), "a position is no edge");
    }
}

/// Accesses of all batches of an epoch, by `threads`.
inline std::vector<int64_t> counted(Sampler& sampler, const DamagedGraph& graph, const Seeds& seeds, int threads) {
  std::vector<int64_t> sizes = graph.num_nodes;
  for (const auto& r : graph.relations) sizes.push_back(graph.nodes_of(r.dst));
  std::vector<int64_t> counts(static_cast<size_t>(std::accumulate(sizes.begin(), sizes.end(), int64_t{0})));
  AccessCounts views;
  int64_t* next = counts.data();
  for (size_t i = 0; i < sizes.size(); next += sizes[i++])
    (i < graph.num_nodes.size() ? views.features : views.adjacency).push_back(next);
  sampler.count_accesses(seeds.epoch(), 1, 0, size_of(seeds.offsets[0]) - 1, views, threads);
  return counts;
}

inline void sample(Referee& referee, const DamagedGraph& graph, Rule rule, int threads, Luck& luck) {
  const std::string name = "sampler " + std::to_string(static_cast<int>(rule));
  const bool weights = rule != Rule::weighted || (graph.weights_sound() && graph.offsets_sound());
  const SamplerConfig config = random_config(graph, rule, luck);
  const Seeds seeds(graph, 1 + luck.below(5), luck);
  std::unique_ptr<Sampler> sampler;
  if (!referee.run(name, exactly(weights), [&] { sampler = std::make_unique<Sampler>(config, threads); })) return;
  const Expected expected = at_least(graph.sound());
  referee.run(name, expected, [&] {
    const SampledBatch batch = sampler->sample(seeds.all(), 1, 2, luck.once_in(2));
    check_batch(referee, graph, config, batch);
  });
  std::vector<int64_t> counts;
  if (!referee.run(name + " counts", expected, [&] { counts = counted(*sampler, graph, seeds, threads); })) return;
  referee.run(name + " again", Expected::result, [&] {
    referee.require(counts == counted(*sampler, graph, seeds, 3 - threads), "threads change what is counted");
  });
}

}  // namespace tiering::test
