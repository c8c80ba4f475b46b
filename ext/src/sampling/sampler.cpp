// Sampling, hop by hop: for every relation (or metapath) in list order, the frontier of its destination type chooses as
// the rule says (relation_hop.hpp, walk_hop.hpp, layer_hop.hpp); ids are numbered by a hash table per type
// (node_table.hpp). Nodes that a hop finds never sample in it. Random numbers are a pure function of (seed, epoch,
// batch, hop, edge group, node key, draw), and one batch is one thread's work, in a workspace of its own: results do
// not depend on the number of threads. In disjoint batches each seed entry is an instance, whose number stands above the
// id in the keys of the tables and follows the edge group in the key of the random numbers. Memory: per running batch 40
// bytes per unique node (disjoint: of an instance, and 8 more), 8 per edge, 16 with positions, 4 more with weights; none
// per graph node.

#include <numeric>
#include <random>

#include "layer_hop.hpp"
#include "relation_hop.hpp"
#include "walk_hop.hpp"

namespace tiering {

namespace {

struct Frontiers {  // half-open ranges of the lists, per type
  std::vector<int64_t> begin, end;
};

StreamUse stream_use(Rule rule) {
  if (rule == Rule::pinsage) return StreamUse::pinsage;
  return rule == Rule::ladies ? StreamUse::ladies : StreamUse::neighbours;
}

constexpr int64_t kAhead = 24;  // elements between prefetching a counter and adding to it

/// counts[node] += 1 for nodes[begin .. end); `shared` says whether other threads add to the same counters.
void count_nodes(const GrowingArray<int64_t>& nodes, int64_t begin, int64_t end, int64_t* counts, bool shared) {
  for (int64_t i = begin; i < end; ++i) {
    if (i + kAhead < end) __builtin_prefetch(counts + nodes[i + kAhead], 1);
    if (shared)
      std::atomic_ref<int64_t>(counts[nodes[i]]).fetch_add(1, std::memory_order_relaxed);
    else
      ++counts[nodes[i]];
  }
}

/// Numbers different ids in order of appearance; writes the number of each id to `positions`, unless it is null.
void find_unique(std::span<const int64_t> ids, int64_t num_nodes, NodeTable& unique, int64_t* positions) {
  const auto size = static_cast<int64_t>(ids.size());
  unique.start(num_nodes);
  unique.make_room(size);
  for (int64_t i = 0; i < size; ++i) {
    if (i + kAhead < size) unique.prefetch(ids[i + kAhead]);
    const int32_t position = unique.insert(ids[i]);
    if (positions != nullptr) positions[i] = position;
  }
}

}  // namespace

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
    std::vector<int64_t> before(tables.size(), 0);
    for (size_t hop = 0; hop < config.fanouts.size(); ++hop) {
      const std::vector<int64_t> now = num_nodes.back();
      frontiers.push_back({config.frontier == Frontier::all ? std::vector<int64_t>(tables.size(), 0) : before, now});
      if (hops != nullptr) hops->emplace_back(config.num_groups());
      for (size_t g = 0; g < config.num_groups(); ++g) {
        const uint64_t stream = fold_key(stream_use(config.rule), {config.seed, epoch, batch, hop, g});
        sample_group(hop, g, stream, want_positions, hops == nullptr ? nullptr : &(*hops)[hop][g]);
      }
      before = now;
      num_nodes.push_back(sizes());
    }
    if (config.induced && wanted != nullptr) induce(want_positions, wanted->emplace_back(config.num_groups()));
    if (config.disjoint) split_keys();
  }

  void induce(bool want_positions, std::vector<SampledEdges>& edges) {
    for (size_t r = 0; r < edges.size(); ++r) {
      HopTask task = task_of(r, want_positions, &edges[r]);
      task.frontier_end = task.destinations->size();
      about(config.relations[r].label(r), [&] { write_induced_edges(task); });
    }
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
            .destinations = &tables[dst],
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

  void sample_group(size_t hop, size_t group, uint64_t stream, bool want_positions, SampledEdges* edges) {
    const size_t src = config.src_type(group), dst = config.dst_type(group);
    const Frontiers& frontier = frontiers.back();
    const int64_t fanout = config.fanouts[hop][group];
    if (fanout == 0 || frontier.begin[dst] == frontier.end[dst]) return;
    const int64_t expected = edge_hints[hop][group] + edge_hints[hop][group] / 16;
    if (edges != nullptr) edges->make_room(expected, want_positions, config.weighs_edges());
    HopTask task = task_of(group, want_positions, edges);
    task.fanout = fanout;
    task.stream = stream;
    task.frontier_begin = frontier.begin[dst];
    task.frontier_end = frontier.end[dst];
    task.known = frontier.end[src];
    if (config.rule == Rule::pinsage)
      walks.run(task);
    else
      about(config.relations[group].label(group), [&] { sample_relation(group, task); });
    if (edges != nullptr) edge_hints[hop][group] = edges->src.size();
  }

  void sample_relation(size_t relation, const HopTask& task) {
    if (config.rule == Rule::ladies) {
      layer.run(task);
    } else if (config.rule == Rule::uniform) {
      run_hop(task, uniform);
    } else if (config.rule == Rule::replacement) {
      run_hop(task, replacement);
    } else {
      weighted.use(sums[relation].data());
      run_hop(task, weighted);
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

void Sampler::GiveBack::operator()(Workspace* workspace) const {
  const std::lock_guard lock(sampler->mutex_);
  sampler->idle_.emplace_back(workspace);
}

std::unique_ptr<Sampler::Workspace, Sampler::GiveBack> Sampler::borrow() {
  std::unique_ptr<Workspace> workspace;
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      workspace = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (!workspace) workspace = std::make_unique<Workspace>(config_, sums_);
  return {workspace.release(), GiveBack{this}};
}

Sampler::Sampler(SamplerConfig config, int threads) : config_(std::move(config)) {
  const size_t types = config_.num_nodes.size();
  TIERING_EXPECT(config_.node_keys.size() == types, "node_keys: one entry per node type");
  for (size_t t = 0; t < types; ++t)
    TIERING_EXPECT(config_.node_keys[t].data == nullptr || config_.node_keys[t].size == config_.num_nodes[t],
                   "node_keys of type ", config_.type_name(t), ": expected ", config_.num_nodes[t], " entries, found ",
                   config_.node_keys[t].size);
  TIERING_EXPECT((!config_.disjoint && !config_.induced) || config_.rule < Rule::pinsage,
                 "disjoint, induced: expected the rule uniform, replacement or weighted");
  for (size_t r = 0; r < config_.relations.size(); ++r) {
    const RelationView& relation = config_.relations[r];
    TIERING_EXPECT(relation.times.empty() || static_cast<int64_t>(relation.times.size()) == relation.indices.size,
                   "times of ", relation.label(r), ": expected ", relation.indices.size, " entries, found ",
                   relation.times.size());
    TIERING_EXPECT(relation.times.empty() || (config_.disjoint && config_.rule != Rule::weighted), "times of ",
                   relation.label(r), ": expected a disjoint batch, and no weights");
    const int64_t columns = config_.num_nodes[relation.dst_type];
    if (config_.rule == Rule::weighted)
      sums_.push_back(tiering::cumulative_weights(relation, columns, relation.label(r), threads));
  }
}

Sampler::~Sampler() = default;

SampledBatch Sampler::sample(const BatchSeeds& seeds, uint64_t epoch, uint64_t batch, bool want_positions,
                             const SeedTimes& times) {
  const auto workspace = borrow();
  workspace->reads = nullptr;
  SampledBatch result;
  workspace->sample(seeds, times, epoch, batch, want_positions, &result.hops);
  result.num_nodes = workspace->num_nodes;
  if (config_.disjoint) {
    result.nodes = std::move(workspace->ids);
    result.instances = std::move(workspace->instances);
  } else {
    for (auto& table : workspace->tables) result.nodes.push_back(table.take_nodes());
  }
  return result;
}

std::vector<GrowingArray<int64_t>> Sampler::sample_nodes(const BatchSeeds& seeds, uint64_t epoch, uint64_t batch,
                                                         const AccessCounts* counts, const SeedTimes& times) {
  const auto workspace = borrow();
  workspace->reads = counts == nullptr ? nullptr : &counts->adjacency;
  workspace->shared_reads = true;
  workspace->sample(seeds, times, epoch, batch, false, nullptr);
  if (counts != nullptr) workspace->add_counts(*counts, true);
  std::vector<GrowingArray<int64_t>> nodes;
  for (size_t t = 0; t < config_.num_nodes.size(); ++t) {
    workspace->unique_nodes(t);
    nodes.push_back((config_.disjoint ? workspace->unique : workspace->tables[t]).take_nodes());
  }
  return nodes;
}

void Sampler::count_accesses(const EpochSeeds& seeds, uint64_t epoch, int64_t first, int64_t last,
                             const AccessCounts& counts, int threads) {
  const size_t types = config_.num_nodes.size();
  TIERING_EXPECT(seeds.ids.size() == types && seeds.offsets.size() == types, "seeds: expected one list per node type");
  for (size_t t = 0; t < seeds.times.size(); ++t)
    TIERING_EXPECT(seeds.times.size() == types && seeds.times[t].size() == seeds.ids[t].size(),
                   "seed times: expected one for each seed");
  for (const auto& offsets : seeds.offsets)
    TIERING_EXPECT(first >= 0 && first <= last && last < static_cast<int64_t>(offsets.size()), "batches ", first,
                   " to ", last, " of ", offsets.size() - 1);
  for_blocks(threads, last - first, [&](int64_t block) {
    const int64_t b = first + block;
    const auto at = static_cast<size_t>(b);
    BatchSeeds of_batch;
    SeedTimes times;
    for (size_t t = 0; t < types; ++t) {
      const auto begin = static_cast<size_t>(seeds.offsets[t][at]), end = static_cast<size_t>(seeds.offsets[t][at + 1]);
      of_batch.push_back(seeds.ids[t].subspan(begin, end - begin));
      if (!seeds.times.empty()) times.push_back(seeds.times[t].subspan(begin, end - begin));
    }
    const auto workspace = borrow();
    workspace->reads = &counts.adjacency;
    workspace->shared_reads = threads > 1;
    workspace->sample(of_batch, times, epoch, static_cast<uint64_t>(b), false, nullptr);
    workspace->add_counts(counts, threads > 1);
  });
}

Rule parse_rule(const std::string& name, size_t count) {
  static constexpr const char* kNames[kNumRules] = {"uniform", "replacement", "weighted", "pinsage", "ladies"};
  const auto* const found = std::find(kNames, kNames + count, name);
  TIERING_EXPECT(found != kNames + count, "rule: no sampling rule '", name, "'");
  return static_cast<Rule>(found - kNames);
}

UniqueIds unique_ids(std::span<const int64_t> ids, int64_t num_nodes) {
  NodeTable table;
  UniqueIds found;
  found.positions.resize(static_cast<int64_t>(ids.size()));
  find_unique(ids, num_nodes, table, found.positions.data());
  found.ids = table.take_nodes();
  return found;
}

Buffer<int64_t> epoch_order(int64_t n, uint64_t seed, uint64_t epoch) {
  Buffer<int64_t> order(n);
  std::iota(order.data(), order.data() + n, int64_t{0});
  Stream random(fold_key(StreamUse::epoch_order, {seed, epoch}), 0);
  for (int64_t i = n - 1; i > 0; --i) std::swap(order[i], order[random.below(static_cast<uint64_t>(i) + 1)]);
  return order;
}

Buffer<int64_t> torch_permutation(int64_t n, uint32_t seed) {
  Buffer<int64_t> order(n);
  std::iota(order.data(), order.data() + n, int64_t{0});
  std::mt19937 numbers(seed);
  for (int64_t i = 0; i + 1 < n; ++i) std::swap(order[i], order[i + numbers() % (n - i)]);
  return order;
}

}  // namespace tiering
