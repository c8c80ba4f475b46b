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

/// Memory that is kept from batch to batch, and what puts a batch on the stream.
struct GpuSampler::Memory {
  explicit Memory(GpuSamplerConfig given)
      : config(std::move(given)),
        types(config.num_nodes.size()),
        groups(config.fanouts.size() * config.relations.size()),
        steps(types.size() + groups.size() + 1),
        known(static_cast<int64_t>((steps * types.size() + groups.size()) * sizeof(int64_t))),
        faults(sizeof(Faults)),
        report(known.size() + static_cast<int64_t>(sizeof(Faults))) {}

  /// Nodes per type after a step: one for each type's seeds, then one for each hop and relation.
  int64_t* known_after(size_t step) const { return known.as<int64_t>() + step * types.size(); }
  int64_t* num_edges(size_t group) const { return known_after(steps) + group; }

  GpuSamplerConfig config;
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
  cudaStream_t stream = nullptr;
  uint64_t epoch = 0, batch = 0;
  bool unfinished = false;
  GpuBatchSizes sizes;

  /// Room for `most` nodes of a type in list and table; what is known stays.
  void grow_nodes(int type, int64_t most) {
    TypeNodes& there = types[type];
    // One at least: what leads to no node is entered as node 0.
    most = std::min(most, std::max<int64_t>(1, config.num_nodes[type]));
    TIERING_EXPECT(most < kMostLocal,
                   "a batch may reach at most 2^31 - 1 nodes of one type: use fewer seeds or smaller fanouts");
    const int64_t before = there.bound;
    there.bound = most;
    const int bits = NodeSlots::bits_for(most);
    if (bits <= there.bits && most <= there.nodes.capacity()) return;
    // In the midst of a batch: its true number of nodes is waited for, and the list is carried over.
    const int64_t carried = before == 0 ? 0 : true_size(known_after(step) + type);
    Scratch<int64_t> old = std::move(there.nodes);
    there.nodes = Scratch<int64_t>();
    there.nodes.require(std::max(most, old.capacity()));
    copy_async(there.nodes.data(), old.data(), carried * 8, stream, "moving nodes");
    if (bits > there.bits) {
      there.bits = 0;  // while there is no table: memory may not suffice for one
      there.keys.require(int64_t{1} << bits);
      there.values.require(int64_t{1} << bits);
      there.bits = bits;
      clear_table(type);
      launch_on(0, "entering nodes", enter_known, carried, stream, there.nodes.data(), carried, there.slots());
    }
    if (carried > 0) check(cudaStreamSynchronize(stream), "moving nodes");  // `old` ends here
  }

  void clear_table(int type) {
    TypeNodes& there = types[type];
    const size_t slots = size_t{1} << there.bits;
    check(cudaMemsetAsync(there.keys.data(), 0xff, slots * sizeof(int64_t), stream), "clearing a table");
    check(cudaMemsetAsync(there.values.data(), 0xff, slots * sizeof(uint32_t), stream), "clearing a table");
  }

  /// A number that only the device knows yet: waits for it.
  int64_t true_size(const int64_t* where) {
    int64_t* const here = report.as<int64_t>();
    copy_async(here, where, sizeof(int64_t), stream, "reading a size");
    ready.record(stream);
    ready.wait();
    return *here;
  }

  /// Waits for the true numbers of nodes; bounds follow them. Returns how many of a type may sample in this hop.
  int64_t read_sizes(size_t type) {
    copy_async(report.data(), known.data(), known.size(), stream, "reading sizes");
    ready.record(stream);
    ready.wait();
    const auto* const now = report.as<int64_t>();
    for (size_t t = 0; t < types.size(); ++t) {
      types[t].bound = now[step * types.size() + t];
      bound_at_start[t] = now[hop_start * types.size() + t];
    }
    return bound_at_start[type];
  }

  /// A hop that skips a relation finds no new nodes and has no edges.
  void pass() {
    copy_async(known_after(step + 1), known_after(step), static_cast<int64_t>(types.size() * sizeof(int64_t)), stream,
               "passing on");
    ++step;
  }

  /// The key of the random numbers of a hop and relation.
  uint64_t stream_key(size_t group) const {
    const size_t relations = config.relations.size();
    return fold_key(StreamUse::neighbors, {config.seed, epoch, batch, group / relations, group % relations});
  }

  /// Puts all of a batch on the stream.
  void put_batch(const std::vector<GpuSeeds>& seeds) {
    check(cudaMemsetAsync(known.data(), 0, static_cast<size_t>(known.size()), stream), "clearing sizes");
    check(cudaMemsetAsync(faults.data(), 0xff, sizeof(Faults), stream), "clearing faults");
    step = 0;
    const auto num_types = static_cast<int>(seeds.size());
    for (int t = 0; t < num_types; ++t) types[t].bound = 0;
    for (int t = 0; t < num_types; ++t) {
      grow_nodes(t, seeds[t].size);
      clear_table(t);
    }
    for (int t = 0; t < num_types; ++t) add_seeds(t, seeds[t]);
    hop_before = 0;
    for (size_t hop = 0; hop < config.fanouts.size(); ++hop) {
      hop_start = step;
      bound_at_start.clear();
      for (const TypeNodes& type : types) bound_at_start.push_back(type.bound);
      for (size_t r = 0; r < config.relations.size(); ++r)
        std::visit([&](const auto& table) { sample(static_cast<int>(hop), static_cast<int>(r), table); },
                   config.relations[r].table);
      hop_before = hop_start;
    }
    copy_async(report.data(), known.data(), known.size(), stream, "reading sizes");
    copy_async(report.data() + known.size(), faults.data(), sizeof(Faults), stream, "reading faults");
  }

  /// The nodes of a type that sample in this hop.
  FrontierView frontier(size_t type, int hop) const {
    return {types[type].nodes.data(), config.only_new && hop > 0 ? known_after(hop_before) + type : nullptr,
            known_after(hop_start) + type};
  }

  void add_seeds(int type, GpuSeeds seeds) {
    TIERING_EXPECT(seeds.size < kMostLocal, "seeds: at most 2^31 - 1 per batch");
    const NodeSlots slots = types[type].slots();
    uint32_t* const reached = found.require(seeds.size + 1);
    launch_on(0, "entering seeds", reach_seeds, seeds.size, stream, seeds, config.num_nodes[type], reached, slots,
              faults.as<Faults>());
    number(type, seeds.size, {nullptr, seeds.size}, nullptr, nullptr);
  }

  /// Numbers the sources of edges that are entered in a type's table: the second half of a hop.
  void number(int type, int64_t bound, Total total, int32_t* src, int64_t* num_edges) {
    TypeNodes& nodes = types[type];
    const Reached edges{total, bound, found.data(), nodes.slots(), ranks.require(bound + 1)};
    const int64_t* const before = known_after(step);
    launch_on(0, "marking new nodes", mark_first, bound + 1, stream, edges);
    prefix_sums(edges.ranks, bound + 1, sums, stream);
    launch_on(0, "numbering nodes", number_nodes, bound, stream, edges, before + type, nodes.nodes.data(), src);
    launch_on(0, "settling nodes", settle, std::max<int64_t>(bound, 1), stream, edges, before, known_after(step + 1),
              static_cast<int>(types.size()), type, num_edges);
    ++step;
  }

  template <typename Index>
  void sample(int hop, int relation, const AdjacencyTable<Index>& table) {
    const GpuRelation& of = config.relations[relation];
    const auto src = static_cast<size_t>(of.src_type), dst = static_cast<size_t>(of.dst_type);
    const int64_t fanout = config.fanouts[hop][relation];
    const auto group = static_cast<size_t>(hop) * config.relations.size() + static_cast<size_t>(relation);
    GroupEdges& kept = groups[group];
    int64_t frontier_bound = bound_at_start[dst];
    if (fanout == 0 || frontier_bound == 0) return pass();
    const bool weighted = config.rule == Rule::weighted, whole = fanout < 0;
    if (whole || frontier_bound * fanout > kMostUnseen) frontier_bound = read_sizes(dst);
    if (frontier_bound == 0) return pass();
    const DrawTask task{config.num_nodes[src], config.num_nodes[dst], fanout, config.rule, stream_key(group)};
    const FrontierLists lists = look_up_lists(task, table, dst, hop, frontier_bound);
    int64_t bound = whole ? kMostUnseen + 1 : frontier_bound * fanout;
    if (bound > kMostUnseen) bound = true_size(lists.counts + frontier_bound);
    TIERING_EXPECT(bound < kMostLocal, "a hop may sample at most 2^31 - 1 edges: use fewer seeds or smaller fanouts");
    grow_nodes(of.src_type, types[src].bound + bound);
    const EdgeArrays edges{kept.src.require(bound), kept.dst.require(bound),
                           config.positions ? kept.positions.require(bound) : nullptr, found.require(bound)};
    const FrontierView frontier = this->frontier(dst, hop);  // it may lie in the list that has just grown
    const NodeSlots slots = types[src].slots();
    Faults* const seen = faults.as<Faults>();
    if (!whole) {
      launch_on(config.max_sms, "reading neighbors", reach_drawn<Index>, frontier_bound * fanout, stream, frontier,
                task, lists, edges, slots, seen);
      return number(of.src_type, bound, {lists.counts + frontier_bound}, edges.src, num_edges(group));
    }
    const uint32_t* sums_of_marks = nullptr;
    Total drawn{lists.counts + frontier_bound};
    if (weighted && bound > 0) {
      uint32_t* const marks = mask.require(bound + 1);
      launch_on(config.max_sms, "looking for weights", mark_positive<Index>, bound + 1, stream, table, frontier, lists,
                bound, marks);
      prefix_sums(marks, bound + 1, sums, stream);
      launch_on(0, "counting edges", widen_total, 1, stream, marks + bound, total.require(1));
      sums_of_marks = marks;
      drawn.there = total.data();
    }
    launch_on(config.max_sms, "reading neighbors", reach_whole<Index>, bound, stream, frontier, task, lists,
              sums_of_marks, bound, edges, slots, seen);
    number(of.src_type, bound, drawn, edges.src, num_edges(group));
  }

  /// Finds the lists of a hop's frontier, draws by weight where that is the rule, and puts their edges one behind the
  /// other.
  template <typename Index>
  FrontierLists look_up_lists(const DrawTask& task, const AdjacencyTable<Index>& table, size_t dst, int hop,
                              int64_t nodes) {
    FrontierLists lists{};
    lists.num_nodes = nodes;
    lists.counts = counts.require(nodes + 1);
    lists.bases = bases.require(nodes);
    lists.degrees = degrees.require(nodes);
    if (!task.whole()) lists.keys = keys.require(nodes);
    if (config.positions) lists.firsts = firsts.require(nodes);
    const FrontierView frontier = this->frontier(dst, hop);
    launch_on(config.max_sms, "looking up lists", look_up<Index>, nodes + 1, stream, table, config.node_keys[dst],
              frontier, task, lists, faults.as<Faults>());
    if (task.rule == Rule::weighted && !task.whole()) {
      lists.places = places.require(nodes * task.fanout);
      lists.taken = taken.require(nodes * task.fanout);
      launch_on(config.max_sms, "sampling by weight", draw_by_weight<Index>, nodes, stream, table, frontier, task,
                lists);
    }
    prefix_sums(lists.counts, nodes + 1, sums, stream);
    return lists;
  }
};

GpuSampler::GpuSampler(GpuSamplerConfig config) : memory_(std::make_unique<Memory>(std::move(config))) {}

GpuSampler::~GpuSampler() {
  if (memory_->stream != nullptr) forget(cudaStreamSynchronize(memory_->stream));
}

void GpuSampler::start(const std::vector<GpuSeeds>& seeds, uint64_t epoch, uint64_t batch, cudaStream_t stream) {
  Memory& m = *memory_;
  TIERING_EXPECT(seeds.size() == m.types.size(), "seeds: expected one list per node type");
  if (m.unfinished) check(cudaStreamSynchronize(m.stream), "abandoning a batch");
  m.stream = stream;
  m.epoch = epoch;
  m.batch = batch;
  m.unfinished = true;
  m.put_batch(seeds);
  m.ready.record(stream);
}

GpuBatchSizes GpuSampler::finish() {
  Memory& m = *memory_;
  m.ready.wait();
  m.unfinished = false;
  const auto* const report = m.report.as<int64_t>();
  Faults faults;
  std::copy_n(m.report.data() + m.known.size(), sizeof faults, reinterpret_cast<std::byte*>(&faults));
  if (faults.seed != ~0ULL) refuse_input("seed ", faults.seed, ": its id is not a node of the graph");
  if (faults.column != ~0ULL) refuse_input("column ", faults.column, ": indptr points outside the indices");
  if (faults.edge != ~0ULL)
    refuse_input("indices: edge ", faults.edge, " of a hop does not lead to a node of the source type");
  const size_t types = m.types.size(), groups = m.config.relations.size();
  m.sizes = {};
  for (size_t hop = 0; hop <= m.config.fanouts.size(); ++hop) {
    const int64_t* const known = report + (types + hop * groups) * types;
    m.sizes.num_nodes.emplace_back(known, known + types);
  }
  for (size_t hop = 0; hop < m.config.fanouts.size(); ++hop) {
    const int64_t* const edges = report + m.steps * types + hop * groups;
    m.sizes.num_edges.emplace_back(edges, edges + groups);
  }
  return m.sizes;
}

void GpuSampler::write_nodes(int type, int64_t* out, cudaStream_t stream) const {
  const auto t = static_cast<size_t>(type);
  copy_async(out, memory_->types[t].nodes.data(), memory_->sizes.num_nodes.back()[t] * 8, stream, "copying nodes");
}

void GpuSampler::write_edges(int hop, int relation, int64_t* out, cudaStream_t stream) const {
  const auto h = static_cast<size_t>(hop), r = static_cast<size_t>(relation);
  const GroupEdges& edges = memory_->groups[h * memory_->config.relations.size() + r];
  const int64_t count = memory_->sizes.num_edges[h][r];
  launch_on(0, "writing edges", widen, count, stream, edges.src.data(), count, out);
  launch_on(0, "writing edges", widen, count, stream, edges.dst.data(), count, out + count);
}

void GpuSampler::write_positions(int hop, int relation, int64_t* out, cudaStream_t stream) const {
  const auto h = static_cast<size_t>(hop), r = static_cast<size_t>(relation);
  const auto& positions = memory_->groups[h * memory_->config.relations.size() + r].positions;
  copy_async(out, positions.data(), memory_->sizes.num_edges[h][r] * 8, stream, "copying positions");
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
