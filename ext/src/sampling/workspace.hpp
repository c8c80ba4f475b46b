// What one batch in the making needs, and its steps.
#pragma once

#include "layer_hop.hpp"
#include "relation_hop.hpp"
#include "walk_hop.hpp"

namespace tiering {

struct Frontiers {  // half-open ranges of the lists, per type
  std::vector<int64_t> begin, end;
};

inline StreamUse stream_use(Rule rule) {
  if (rule == Rule::pinsage) return StreamUse::pinsage;
  return rule == Rule::ladies ? StreamUse::ladies : StreamUse::neighbors;
}

inline constexpr int64_t kAhead = 24;  // elements between prefetching a counter and adding to it

/// counts[node] += 1 for nodes[begin .. end); `shared` says whether other threads add to the same counters.
inline void count_nodes(const GrowingArray<int64_t>& nodes, int64_t begin, int64_t end, int64_t* counts, bool shared) {
  for (int64_t i = begin; i < end; ++i) {
    if (i + kAhead < end) __builtin_prefetch(counts + nodes[i + kAhead], 1);
    if (shared)
      std::atomic_ref<int64_t>(counts[nodes[i]]).fetch_add(1, std::memory_order_relaxed);
    else
      ++counts[nodes[i]];
  }
}

/// Numbers different ids in order of appearance; writes the number of each id to `positions`, unless it is null.
inline void find_unique(std::span<const int64_t> ids, int64_t num_nodes, NodeTable& unique, int64_t* positions) {
  const auto size = static_cast<int64_t>(ids.size());
  unique.start(num_nodes);
  unique.make_room(size);
  for (int64_t i = 0; i < size; ++i) {
    if (i + kAhead < size) unique.prefetch(ids[i + kAhead]);
    const int32_t position = unique.insert(ids[i]);
    if (positions != nullptr) positions[i] = position;
  }
}

inline void check_epoch(const EpochSeeds& seeds, const SamplerConfig& config, int64_t first, int64_t last) {
  const size_t types = config.num_nodes.size();
  TIERING_EXPECT(seeds.ids.size() == types && seeds.offsets.size() == types, "seeds: expected one list per node type");
  for (size_t t = 0; t < seeds.times.size(); ++t)
    TIERING_EXPECT(seeds.times.size() == types && seeds.times[t].size() == seeds.ids[t].size(),
                   "seed times: expected one for each seed");
  for (const auto& offsets : seeds.offsets)
    TIERING_EXPECT(first >= 0 && first <= last && last < static_cast<int64_t>(offsets.size()), "batches ", first,
                   " to ", last, " of ", offsets.size() - 1);
}

/// What arrays of an epoch have of a batch.
inline BatchSeeds cut(const BatchSeeds& arrays, const std::vector<std::span<const int64_t>>& offsets, int64_t batch) {
  BatchSeeds found;
  const auto at = static_cast<size_t>(batch);
  for (size_t t = 0; t < arrays.size(); ++t) {
    const auto begin = static_cast<size_t>(offsets[t][at]), end = static_cast<size_t>(offsets[t][at + 1]);
    found.push_back(arrays[t].subspan(begin, end - begin));
  }
  return found;
}

inline BatchSeeds seeds_of(const EpochSeeds& seeds, int64_t batch) { return cut(seeds.ids, seeds.offsets, batch); }

inline SeedTimes times_of(const EpochSeeds& seeds, int64_t batch) {
  return seeds.times.empty() ? SeedTimes() : cut(seeds.times, seeds.offsets, batch);
}

/// Everything one batch in the making needs; reused from batch to batch.
struct Sampler::Workspace {
  Workspace(const SamplerConfig& c, const std::vector<Buffer<uint64_t>>& s)
      : config(c), sums(s), tables(c.num_nodes.size()) {
    edge_hints.resize(c.fanouts.size(), std::vector<int64_t>(c.num_groups(), 0));
  }

  const SamplerConfig& config;
  const std::vector<Buffer<uint64_t>>& sums;
  std::vector<NodeTable> tables;                 // per type
  std::vector<std::vector<int64_t>> num_nodes;   // sizes after 0, 1, ... hops
  std::vector<Frontiers> frontiers;              // per hop
  std::vector<std::vector<int64_t>> edge_hints;  // edges of the last batch: room for the next
  UniformDraw uniform;
  ReplacementDraw replacement;
  WeightedDraw weighted;
  HopScratch scratch;
  WalkHop walks;
  LayerHop layer;
  const std::vector<int64_t*>* reads = nullptr;  // counters of the lists that walks read, per relation
  bool shared_reads = false;

  // Of disjoint batches:
  int id_bits = 62;                              // of the tables' keys
  std::vector<int64_t> clocks;                   // seed time of each instance
  NodeTable unique;                              // different ids of a type
  std::vector<GrowingArray<int64_t>> ids;        // per type: of the nodes, once the batch is drawn
  std::vector<GrowingArray<int64_t>> instances;  // per type, of each node, likewise

  void start(const BatchSeeds& seeds, const SeedTimes& times) {
    TIERING_EXPECT(seeds.size() == tables.size(), "seeds: expected one list per node type");
    num_nodes.clear();
    frontiers.clear();
    clocks.clear();
    const int64_t all_seeds = config.disjoint ? start_instances(seeds, times) : 1;
    int64_t first = 0;  // instance of the type's first seed
    for (size_t t = 0; t < tables.size(); ++t) {
      tables[t].start(config.disjoint ? all_seeds << id_bits : config.num_nodes[t]);
      add_seeds(t, seeds[t], first);
      first += static_cast<int64_t>(seeds[t].size());
    }
    num_nodes.push_back(sizes());
  }

  /// Finds the keys' bits and the instances' seed times; returns the number of instances.
  int64_t start_instances(const BatchSeeds& seeds, const SeedTimes& times) {
    int64_t count = 0, most = 1;
    TIERING_EXPECT(!times.empty() || !config.has_times(), "seed times: expected one for each seed, found none");
    for (size_t t = 0; t < tables.size(); ++t) {
      count += static_cast<int64_t>(seeds[t].size());
      most = std::max(most, config.num_nodes[t]);
      if (times.empty()) continue;
      TIERING_EXPECT(times.size() == tables.size() && times[t].size() == seeds[t].size(), "seed times of type ",
                     config.type_name(t), ": expected one for each of ", seeds[t].size(), " seeds");
      clocks.insert(clocks.end(), times[t].begin(), times[t].end());
    }
    id_bits = static_cast<int>(std::bit_width(static_cast<uint64_t>(most)));
    TIERING_EXPECT(count < INT32_MAX && count < int64_t{1} << (62 - id_bits),
                   "seeds: a disjoint batch numbers nodes by seed and id: use smaller batches");
    return count;
  }

  void add_seeds(size_t type, std::span<const int64_t> seeds, int64_t first) {
    TIERING_EXPECT(seeds.size() < INT32_MAX, "seeds: at most 2^31 - 1 per batch");
    tables[type].make_room(static_cast<int64_t>(seeds.size()));
    for (size_t i = 0; i < seeds.size(); ++i) {
      const int64_t id = read_once(seeds[i]);
      TIERING_EXPECT(id >= 0 && id < config.num_nodes[type], "seed ", i, " of type ", config.type_name(type), ": id ",
                     id, " is outside 0..", config.num_nodes[type] - 1);
      tables[type].insert(config.disjoint ? (first + static_cast<int64_t>(i)) << id_bits | id : id);
    }
  }

  std::vector<int64_t> sizes() const {
    std::vector<int64_t> sizes;
    sizes.reserve(tables.size());
    for (const auto& table : tables) sizes.push_back(table.size());
    return sizes;
  }

  void sample(const BatchSeeds& seeds, const SeedTimes& times, uint64_t epoch, uint64_t batch, bool want_positions,
              std::vector<std::vector<SampledEdges>>* wanted) {
    start(seeds, times);
    auto* const hops = config.induced ? nullptr : wanted;
    for (size_t hop = 0; hop < config.fanouts.size(); ++hop) {
      begin_hop();
      if (hops != nullptr) hops->emplace_back(config.num_groups());
      for (size_t g = 0; g < config.num_groups(); ++g)
        if (samples(hop, g))
          sample_group(hop, g, epoch, batch, want_positions, hops == nullptr ? nullptr : &(*hops)[hop][g]);
      num_nodes.push_back(sizes());
    }
    if (config.induced && wanted != nullptr) induce(want_positions, wanted->emplace_back(config.num_groups()));
    if (config.disjoint) split_keys();
  }

  /// Fixes which nodes sample in the next hop.
  void begin_hop() {
    const bool some = config.frontier == Frontier::only_new && num_nodes.size() > 1;
    frontiers.push_back({some ? num_nodes.rbegin()[1] : std::vector<int64_t>(tables.size(), 0), num_nodes.back()});
  }

  /// Whether a group of edges has nodes that sample in the hop, which has begun.
  bool samples(size_t hop, size_t group) const {
    const size_t dst = config.dst_type(group);
    return config.fanouts[hop][group] != 0 && frontiers.back().begin[dst] != frontiers.back().end[dst];
  }

  void induce(bool want_positions, std::vector<SampledEdges>& edges) {
    for (size_t r = 0; r < edges.size(); ++r) {
      HopTask task = task_of(r, want_positions, &edges[r]);
      task.frontier_end = task.destinations->size();
      about(config.relations[r].label(r), [&] { write_induced_edges(task); });
    }
  }

  /// The task of a group of edges in a hop that has begun.
  HopTask task_of(size_t hop, size_t group, uint64_t epoch, uint64_t batch, bool want_positions, SampledEdges* edges) {
    const size_t src = config.src_type(group), dst = config.dst_type(group);
    HopTask task = task_of(group, want_positions, edges);
    task.fanout = config.fanouts[hop][group];
    task.stream = fold_key(stream_use(config.rule), {config.seed, epoch, batch, hop, group});
    task.frontier_begin = frontiers.back().begin[dst];
    task.frontier_end = frontiers.back().end[dst];
    task.known = frontiers.back().end[src];
    return task;
  }

  /// The task of a group of edges, but for its draws.
  HopTask task_of(size_t group, bool want_positions, SampledEdges* edges) {
    const size_t src = config.src_type(group), dst = config.dst_type(group);
    const bool walking = config.rule == Rule::pinsage;
    return {.config = &config,
            .relation = walking ? nullptr : &config.relations[group],
            .metapath = walking ? &config.walks.metapaths[group] : nullptr,
            .num_src = config.num_nodes[src],
            .destination_keys = config.node_keys[dst],
            .source_keys = config.node_keys[src],
            .sources = &tables[src],
            .destinations = &tables[dst].nodes(),
            .edges = edges,
            .want_positions = want_positions,
            .reads = reads,
            .shared_reads = shared_reads,
            .id_bits = id_bits,
            .clocks = clocks.data()};
  }

  /// Splits the keys of a disjoint batch, once it is drawn, into ids and instances.
  void split_keys() {
    ids.clear();
    instances.clear();
    for (auto& table : tables) {
      auto& nodes = ids.emplace_back(table.take_nodes());
      auto& instance = instances.emplace_back();
      instance.resize(nodes.size());
      for (int64_t i = 0; i < nodes.size(); ++i) {
        instance[i] = nodes[i] >> id_bits;
        nodes[i] &= (int64_t{1} << id_bits) - 1;
      }
    }
  }

  /// Ids of a drawn batch, one for each node.
  const GrowingArray<int64_t>& nodes(size_t type) const { return config.disjoint ? ids[type] : tables[type].nodes(); }

  /// Different ids of a drawn batch, in order of discovery.
  const GrowingArray<int64_t>& unique_nodes(size_t type) {
    if (!config.disjoint) return tables[type].nodes();
    find_unique(std::as_const(ids[type]), config.num_nodes[type], unique, nullptr);
    return unique.nodes();
  }

  /// Hands over the different ids of a drawn batch, per type; start() must come next.
  std::vector<GrowingArray<int64_t>> take_unique() {
    std::vector<GrowingArray<int64_t>> nodes;
    for (size_t t = 0; t < tables.size(); ++t) {
      unique_nodes(t);
      nodes.push_back((config.disjoint ? unique : tables[t]).take_nodes());
    }
    return nodes;
  }

  /// Hands over nodes, sizes and instances of a drawn batch; start() must come next.
  SampledBatch take_batch() {
    SampledBatch batch;
    batch.num_nodes = num_nodes;
    if (config.disjoint) {
      batch.nodes = std::move(ids);
      batch.instances = std::move(instances);
    } else {
      for (auto& table : tables) batch.nodes.push_back(table.take_nodes());
    }
    return batch;
  }

  void sample_group(size_t hop, size_t group, uint64_t epoch, uint64_t batch, bool want_positions,
                    SampledEdges* edges) {
    const int64_t expected = edge_hints[hop][group] + edge_hints[hop][group] / 16;
    if (edges != nullptr) edges->make_room(expected, want_positions, config.weighs_edges());
    const HopTask task = task_of(hop, group, epoch, batch, want_positions, edges);
    if (config.rule == Rule::pinsage)
      walks.run(task);
    else
      about(config.relations[group].label(group), [&] { sample_relation(group, task); });
    if (edges != nullptr) edge_hints[hop][group] = edges->src.size();
  }

  void sample_relation(size_t relation, const HopTask& task) {
    if (config.rule == Rule::ladies)
      layer.run(task);
    else
      with_draw(relation, [&](auto& draw) { run_hop(task, draw); });
  }

  /// Calls `body` with the rule by which nodes draw from their own lists.
  template <typename Body>
  void with_draw(size_t relation, Body body) {
    if (config.rule == Rule::uniform) {
      body(uniform);
    } else if (config.rule == Rule::replacement) {
      body(replacement);
    } else {
      weighted.use(sums[relation].data());
      body(weighted);
    }
  }

  template <typename Draw>
  void run_hop(const HopTask& task, Draw& draw) {
    if (config.disjoint)
      run_disjoint_hop(task, draw, scratch);
    else
      RelationHop<Draw, false>(task, draw, scratch).run();
  }

  void add_counts(const AccessCounts& counts, bool shared) {
    for (size_t t = 0; t < tables.size(); ++t) {
      if (counts.features[t] == nullptr) continue;
      const auto& rows = unique_nodes(t);
      count_nodes(rows, 0, rows.size(), counts.features[t], shared);
    }
    if (config.rule == Rule::pinsage) return;  // counted step by step, as `reads`
    for (size_t r = 0; r < config.relations.size(); ++r) {
      if (counts.adjacency[r] == nullptr) continue;
      const size_t dst = config.dst_type(r);
      for (size_t hop = 0; hop < config.fanouts.size(); ++hop)
        if (config.fanouts[hop][r] != 0)
          count_nodes(nodes(dst), frontiers[hop].begin[dst], frontiers[hop].end[dst], counts.adjacency[r], shared);
      if (config.induced) count_nodes(nodes(dst), 0, nodes(dst).size(), counts.adjacency[r], shared);
    }
  }
};

}  // namespace tiering
