#include <tiering/cuda/sampler.hpp>
#include <tiering/errors.hpp>

#include "cub_calls.hpp"
#include "sampler_kernels.cuh"

namespace tiering::cuda {

inline constexpr int64_t kMostLocal = int64_t{1} << 31;  // local ids, and edges of a hop and relation

/// The numbering of one node type.
struct TypeNodes {
  Scratch<int64_t> nodes, keys;
  Scratch<uint32_t> values;
  int bits = 0;
  int64_t bound = 0;  ///< nodes that the batch may have reached so far

  NodeSlots slots() const { return {keys.data(), values.data(), bits}; }
};

/// Edges of a hop and relation until they are written.
struct GroupEdges {
  Scratch<int32_t> src, dst;
  Scratch<int64_t> positions;
};

/// Memory that is kept from batch to batch.
struct GpuSampler::Memory {
  explicit Memory(const GpuSamplerConfig& config)
      : types(config.num_nodes.size()),
        groups(config.fanouts.size() * config.relations.size()),
        steps(types.size() + groups.size() + 1),
        known(static_cast<int64_t>((steps * types.size() + groups.size()) * sizeof(int64_t))),
        faults(sizeof(Faults)),
        report(known.size() + static_cast<int64_t>(sizeof(Faults))) {}

  /// Nodes per type after a step: one for each type's seeds, then one for each hop and relation.
  int64_t* known_after(size_t step) const { return known.as<int64_t>() + step * types.size(); }
  int64_t* num_edges(size_t group) const { return known_after(steps) + group; }

  std::vector<TypeNodes> types;
  std::vector<GroupEdges> groups;  ///< hop by hop, its relations
  size_t steps;
  DeviceMemory known;
  DeviceMemory faults;
  PinnedMemory report;  ///< `known` and `faults` on the host
  Scratch<int64_t> counts, bases, degrees, firsts, places, taken, total;
  Scratch<uint64_t> keys;
  Scratch<uint32_t> found, ranks, mask;
  Scratch<std::byte> sums;
  GpuEvent ready;
  size_t step = 0;                      ///< the last that is on the stream
  size_t hop_start = 0;                 ///< the last before this hop
  size_t hop_before = 0;                ///< the last before the hop before
  std::vector<int64_t> bound_at_start;  ///< of the frontier, per type
};

GpuSampler::GpuSampler(GpuSamplerConfig config)
    : config_(std::move(config)), memory_(std::make_unique<Memory>(config_)) {}

GpuSampler::~GpuSampler() {
  if (stream_ != nullptr) forget(cudaStreamSynchronize(stream_));
}

/// Room for `most` nodes of a type in list and table; what is known stays.
void GpuSampler::grow_nodes(int type, int64_t most) {
  TypeNodes& there = memory_->types[static_cast<size_t>(type)];
  // One at least: what leads to no node is entered as node 0.
  most = std::min(most, std::max<int64_t>(1, config_.num_nodes[static_cast<size_t>(type)]));
  TIERING_EXPECT(most < kMostLocal,
                 "a batch may reach at most 2^31 - 1 nodes of one type: use fewer seeds or smaller fanouts");
  const int64_t before = there.bound;
  there.bound = most;
  const int bits = NodeSlots::bits_for(most);
  if (bits <= there.bits && most <= there.nodes.capacity()) return;
  // In the midst of a batch: its true number of nodes is waited for, and the list is carried over.
  const int64_t known = before == 0 ? 0 : true_size(memory_->known_after(memory_->step) + type);
  Scratch<int64_t> old = std::move(there.nodes);
  there.nodes = Scratch<int64_t>();
  there.nodes.require(std::max(most, old.capacity()));
  copy_async(there.nodes.data(), old.data(), known * 8, stream_, "moving nodes");
  if (bits > there.bits) {
    there.bits = 0;  // while there is no table: memory may not suffice for one
    there.keys.require(int64_t{1} << bits);
    there.values.require(int64_t{1} << bits);
    there.bits = bits;
    clear_table(type);
    launch_on(0, "entering nodes", enter_known, known, stream_, there.nodes.data(), known, there.slots());
  }
  if (known > 0) check(cudaStreamSynchronize(stream_), "moving nodes");  // `old` ends here
}

void GpuSampler::clear_table(int type) {
  TypeNodes& there = memory_->types[static_cast<size_t>(type)];
  const size_t slots = size_t{1} << there.bits;
  check(cudaMemsetAsync(there.keys.data(), 0xff, slots * sizeof(int64_t), stream_), "clearing a table");
  check(cudaMemsetAsync(there.values.data(), 0xff, slots * sizeof(uint32_t), stream_), "clearing a table");
}

/// A number that only the device knows yet: waits for it.
int64_t GpuSampler::true_size(const int64_t* where) {
  int64_t* const here = memory_->report.as<int64_t>();
  copy_async(here, where, sizeof(int64_t), stream_, "reading a size");
  memory_->ready.record(stream_);
  memory_->ready.wait();
  return *here;
}

/// Waits for the true numbers of nodes; bounds follow them. Returns how many of a type may sample in this hop.
int64_t GpuSampler::read_sizes(size_t type) {
  Memory& m = *memory_;
  copy_async(m.report.data(), m.known.data(), m.known.size(), stream_, "reading sizes");
  m.ready.record(stream_);
  m.ready.wait();
  const auto* const known = m.report.as<int64_t>();
  for (size_t t = 0; t < m.types.size(); ++t) {
    m.types[t].bound = known[m.step * m.types.size() + t];
    m.bound_at_start[t] = known[m.hop_start * m.types.size() + t];
  }
  return m.bound_at_start[type];
}

/// A hop that skips a relation.
void GpuSampler::pass(size_t group) {
  Memory& m = *memory_;
  const auto types = static_cast<int>(m.types.size());
  launch_on(0, "passing on", pass_on, types, stream_, m.known_after(m.step), m.known_after(m.step + 1), types,
            m.num_edges(group));
  ++m.step;
}

void GpuSampler::start(const std::vector<GpuSeeds>& seeds, uint64_t epoch, uint64_t batch, cudaStream_t stream) {
  TIERING_EXPECT(seeds.size() == config_.num_nodes.size(), "seeds: expected one list per node type");
  if (unfinished_) check(cudaStreamSynchronize(stream_), "giving a batch up");
  stream_ = stream;
  epoch_ = epoch;
  batch_ = batch;
  unfinished_ = true;
  put_batch(seeds);
  memory_->ready.record(stream_);
}

/// The key of the random numbers of a hop and relation.
uint64_t GpuSampler::stream_key(size_t group) const {
  const size_t relations = config_.relations.size();
  return fold_key(StreamUse::neighbours, {config_.seed, epoch_, batch_, group / relations, group % relations});
}

/// Puts all of a batch on the stream.
void GpuSampler::put_batch(const std::vector<GpuSeeds>& seeds) {
  Memory& m = *memory_;
  check(cudaMemsetAsync(m.known.data(), 0, static_cast<size_t>(m.known.size()), stream_), "clearing sizes");
  check(cudaMemsetAsync(m.faults.data(), 0xff, sizeof(Faults), stream_), "clearing faults");
  m.step = 0;
  const auto types = static_cast<int>(seeds.size());
  for (int t = 0; t < types; ++t) m.types[static_cast<size_t>(t)].bound = 0;
  for (int t = 0; t < types; ++t) {
    grow_nodes(t, seeds[static_cast<size_t>(t)].size);
    clear_table(t);
  }
  for (int t = 0; t < types; ++t) add_seeds(t, seeds[static_cast<size_t>(t)]);
  m.hop_before = 0;
  for (size_t hop = 0; hop < config_.fanouts.size(); ++hop) {
    m.hop_start = m.step;
    m.bound_at_start.clear();
    for (const TypeNodes& type : m.types) m.bound_at_start.push_back(type.bound);
    for (size_t r = 0; r < config_.relations.size(); ++r)
      std::visit([&](const auto& table) { sample(static_cast<int>(hop), static_cast<int>(r), table); },
                 config_.relations[r].table);
    m.hop_before = m.hop_start;
  }
  std::byte* const report = m.report.data();
  copy_async(report, m.known.data(), m.known.size(), stream_, "reading sizes");
  copy_async(report + m.known.size(), m.faults.data(), sizeof(Faults), stream_, "reading faults");
}

/// The nodes of a type that sample in this hop.
FrontierView GpuSampler::frontier(size_t type, int hop) const {
  const Memory& m = *memory_;
  return {m.types[type].nodes.data(), config_.only_new && hop > 0 ? m.known_after(m.hop_before) + type : nullptr,
          m.known_after(m.hop_start) + type};
}

void GpuSampler::add_seeds(int type, GpuSeeds seeds) {
  TIERING_EXPECT(seeds.size < kMostLocal, "seeds: at most 2^31 - 1 per batch");
  Memory& m = *memory_;
  const NodeSlots slots = m.types[static_cast<size_t>(type)].slots();
  uint32_t* const found = m.found.require(seeds.size + 1);
  launch_on(0, "entering seeds", reach_seeds, seeds.size, stream_, seeds, config_.num_nodes[static_cast<size_t>(type)],
            found, slots, m.faults.as<Faults>());
  number(type, seeds.size, {nullptr, seeds.size}, nullptr, nullptr);
}

/// Numbers the sources of edges that are entered in a type's table: the second half of a hop.
void GpuSampler::number(int type, int64_t bound, Total total, int32_t* src, int64_t* num_edges) {
  Memory& m = *memory_;
  TypeNodes& nodes = m.types[static_cast<size_t>(type)];
  const Reached edges{total, bound, m.found.data(), nodes.slots(), m.ranks.require(bound + 1)};
  const int64_t* const known = m.known_after(m.step);
  launch_on(0, "marking new nodes", mark_first, bound + 1, stream_, edges);
  prefix_sums(edges.ranks, bound + 1, m.sums, stream_);
  launch_on(0, "numbering nodes", number_nodes, bound, stream_, edges, known + type, nodes.nodes.data(), src);
  launch_on(0, "settling nodes", settle, std::max<int64_t>(bound, 1), stream_, edges, known, m.known_after(m.step + 1),
            static_cast<int>(m.types.size()), type, num_edges);
  ++m.step;
}

template <typename Index>
void GpuSampler::sample(int hop, int relation, const AdjacencyTable<Index>& table) {
  Memory& m = *memory_;
  const GpuRelation& of = config_.relations[static_cast<size_t>(relation)];
  const auto src = static_cast<size_t>(of.src_type), dst = static_cast<size_t>(of.dst_type);
  const int64_t fanout = config_.fanouts[static_cast<size_t>(hop)][static_cast<size_t>(relation)];
  const auto group = static_cast<size_t>(hop) * config_.relations.size() + static_cast<size_t>(relation);
  GroupEdges& kept = m.groups[group];
  int64_t frontier_bound = m.bound_at_start[dst];
  if (fanout == 0 || frontier_bound == 0) return pass(group);
  const bool weighted = config_.rule == DrawRule::weighted, whole = fanout < 0;
  if (whole || frontier_bound * fanout > kMostUnseen) frontier_bound = read_sizes(dst);
  if (frontier_bound == 0) return pass(group);
  const DrawTask task{config_.num_nodes[src], config_.num_nodes[dst], fanout, config_.rule, stream_key(group)};
  const FrontierLists lists = look_up_lists(task, table, dst, hop, frontier_bound);
  int64_t bound = whole ? kMostUnseen + 1 : frontier_bound * fanout;
  if (bound > kMostUnseen) bound = true_size(lists.counts + frontier_bound);
  TIERING_EXPECT(bound < kMostLocal, "a hop may draw at most 2^31 - 1 edges: use fewer seeds or smaller fanouts");
  grow_nodes(of.src_type, m.types[src].bound + bound);
  const EdgeArrays edges{kept.src.require(bound), kept.dst.require(bound),
                         config_.positions ? kept.positions.require(bound) : nullptr, m.found.require(bound)};
  const FrontierView frontier = this->frontier(dst, hop);  // it may lie in the list that has just grown
  const NodeSlots slots = m.types[src].slots();
  Faults* const faults = m.faults.as<Faults>();
  if (!whole) {
    launch_on(config_.max_sms, "reading neighbours", reach_drawn<Index>, frontier_bound * fanout, stream_, frontier,
              task, lists, edges, slots, faults);
    return number(of.src_type, bound, {lists.counts + frontier_bound}, edges.src, m.num_edges(group));
  }
  const uint32_t* ranks = nullptr;
  Total total{lists.counts + frontier_bound};
  if (weighted && bound > 0) {
    uint32_t* const mask = m.mask.require(bound + 1);
    launch_on(config_.max_sms, "looking for weights", mark_positive<Index>, bound + 1, stream_, table, frontier, lists,
              bound, mask);
    prefix_sums(mask, bound + 1, m.sums, stream_);
    launch_on(0, "counting edges", widen_total, 1, stream_, mask + bound, m.total.require(1));
    ranks = mask;
    total.there = m.total.data();
  }
  launch_on(config_.max_sms, "reading neighbours", reach_whole<Index>, bound, stream_, frontier, task, lists, ranks,
            bound, edges, slots, faults);
  number(of.src_type, bound, total, edges.src, m.num_edges(group));
}

/// Finds the lists of a hop's frontier, draws by weight where that is the rule, and puts their edges one behind the
/// other.
template <typename Index>
FrontierLists GpuSampler::look_up_lists(const DrawTask& task, const AdjacencyTable<Index>& table, size_t dst, int hop,
                                        int64_t nodes) {
  Memory& m = *memory_;
  FrontierLists lists{};
  lists.num_nodes = nodes;
  lists.counts = m.counts.require(nodes + 1);
  lists.bases = m.bases.require(nodes);
  lists.degrees = m.degrees.require(nodes);
  if (!task.whole()) lists.keys = m.keys.require(nodes);
  if (config_.positions) lists.firsts = m.firsts.require(nodes);
  const FrontierView frontier = this->frontier(dst, hop);
  launch_on(config_.max_sms, "looking up lists", look_up<Index>, nodes + 1, stream_, table, config_.node_keys[dst],
            frontier, task, lists, m.faults.as<Faults>());
  if (task.rule == DrawRule::weighted && !task.whole()) {
    lists.places = m.places.require(nodes * task.fanout);
    lists.taken = m.taken.require(nodes * task.fanout);
    launch_on(config_.max_sms, "drawing by weight", draw_by_weight<Index>, nodes, stream_, table, frontier, task,
              lists);
  }
  prefix_sums(lists.counts, nodes + 1, m.sums, stream_);
  return lists;
}

GpuBatchSizes GpuSampler::finish() {
  Memory& m = *memory_;
  m.ready.wait();
  unfinished_ = false;
  const auto* const report = m.report.as<int64_t>();
  Faults faults;
  std::copy_n(m.report.data() + m.known.size(), sizeof faults, reinterpret_cast<std::byte*>(&faults));
  if (faults.seed != ~0ULL) refuse_input("seed ", faults.seed, ": its id is no node of the graph");
  if (faults.column != ~0ULL) refuse_input("column ", faults.column, ": indptr leads outside the indices");
  if (faults.edge != ~0ULL)
    refuse_input("indices: edge ", faults.edge, " of a hop leads to no node of the source type");
  const size_t types = m.types.size(), groups = config_.relations.size();
  GpuBatchSizes sizes;
  for (size_t hop = 0; hop <= config_.fanouts.size(); ++hop) {
    const int64_t* const known = report + (types + hop * groups) * types;
    sizes.num_nodes.emplace_back(known, known + types);
  }
  for (size_t hop = 0; hop < config_.fanouts.size(); ++hop) {
    const int64_t* const edges = report + m.steps * types + hop * groups;
    sizes.num_edges.emplace_back(edges, edges + groups);
  }
  sizes_ = sizes;
  return sizes;
}

void GpuSampler::write_nodes(int type, int64_t* out, cudaStream_t stream) const {
  const auto t = static_cast<size_t>(type);
  copy_async(out, memory_->types[t].nodes.data(), sizes_.num_nodes.back()[t] * 8, stream, "copying nodes");
}

void GpuSampler::write_edges(int hop, int relation, int64_t* out, cudaStream_t stream) const {
  const auto h = static_cast<size_t>(hop), r = static_cast<size_t>(relation);
  const GroupEdges& edges = memory_->groups[h * config_.relations.size() + r];
  const int64_t count = sizes_.num_edges[h][r];
  launch_on(0, "writing edges", widen, count, stream, edges.src.data(), count, out);
  launch_on(0, "writing edges", widen, count, stream, edges.dst.data(), count, out + count);
}

void GpuSampler::write_positions(int hop, int relation, int64_t* out, cudaStream_t stream) const {
  const auto h = static_cast<size_t>(hop), r = static_cast<size_t>(relation);
  const auto& positions = memory_->groups[h * config_.relations.size() + r].positions;
  copy_async(out, positions.data(), sizes_.num_edges[h][r] * 8, stream, "copying positions");
}

int64_t GpuSampler::device_bytes() const {
  const Memory& m = *memory_;
  int64_t bytes = m.known.size() + m.faults.size() + m.sums.capacity() +
                  8 * (m.counts.capacity() + m.bases.capacity() + m.degrees.capacity() + m.keys.capacity() +
                       m.firsts.capacity() + m.places.capacity() + m.taken.capacity()) +
                  4 * (m.found.capacity() + m.ranks.capacity() + m.mask.capacity());
  for (const auto& type : m.types)
    bytes += 8 * (type.nodes.capacity() + type.keys.capacity()) + 4 * type.values.capacity();
  for (const auto& group : m.groups)
    bytes += 4 * (group.src.capacity() + group.dst.capacity()) + 8 * group.positions.capacity();
  return bytes;
}

}  // namespace tiering::cuda
