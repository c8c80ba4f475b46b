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

#include "workspace.hpp"

namespace tiering {

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
  std::vector<std::vector<SampledEdges>> hops;
  workspace->sample(seeds, times, epoch, batch, want_positions, &hops);
  SampledBatch result = workspace->take_batch();
  result.hops = std::move(hops);
  return result;
}

std::vector<GrowingArray<int64_t>> Sampler::sample_nodes(const BatchSeeds& seeds, uint64_t epoch, uint64_t batch,
                                                         const AccessCounts* counts, const SeedTimes& times) {
  const auto workspace = borrow();
  workspace->reads = counts == nullptr ? nullptr : &counts->adjacency;
  workspace->shared_reads = true;
  workspace->sample(seeds, times, epoch, batch, false, nullptr);
  if (counts != nullptr) workspace->add_counts(*counts, true);
  return workspace->take_unique();
}

void Sampler::count_accesses(const EpochSeeds& seeds, uint64_t epoch, int64_t first, int64_t last,
                             const AccessCounts& counts, int threads) {
  check_epoch(seeds, config_, first, last);
  for_blocks(threads, last - first, [&](int64_t block) {
    const int64_t b = first + block;
    const auto workspace = borrow();
    workspace->reads = &counts.adjacency;
    workspace->shared_reads = threads > 1;
    workspace->sample(seeds_of(seeds, b), times_of(seeds, b), epoch, static_cast<uint64_t>(b), false, nullptr);
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
