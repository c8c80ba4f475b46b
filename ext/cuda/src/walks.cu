#include <algorithm>
#include <tiering/cuda/launch.hpp>
#include <tiering/device/walks.hpp>

#include "prefix_sums.hpp"
#include "sort_pairs.hpp"
#include "walks.hpp"

namespace tiering::cuda {

/// A relation as walks read it, in the memory of the device: there may be more than a kernel takes as arguments.
struct WalkRelation {
  AdjacencyTable<int32_t> narrow;  ///< one of the two
  AdjacencyTable<int64_t> wide;
  bool is_wide = false;
  int64_t num_src = 0, num_dst = 0;
};

/// The visits of a turn, sorted: one word each, the frontier node's number in the turn above the id of the visited node.
/// Runs of equal words are visited nodes.
struct Visits {
  int64_t nodes;     ///< frontier nodes of the turn; in the place of one: no visit
  int64_t per_node;  ///< visits at most
  int id_bits, count_bits;
  uint64_t* sorted;
  uint32_t* runs;    ///< prefix sums of the words that begin a run; behind the last, how many runs there are
  uint32_t* starts;  ///< where each run begins, and the last ends

  int64_t size() const { return nodes * per_node; }
  int node_bits() const { return bits_of(nodes); }

  TIERING_BOTH uint64_t none() const { return static_cast<uint64_t>(nodes) << id_bits; }
  TIERING_DEVICE uint64_t of(int64_t node, int64_t id) const {
    return static_cast<uint64_t>(node) << id_bits | static_cast<uint64_t>(id);
  }
  TIERING_DEVICE bool begins_run(int64_t e) const {
    return sorted[e] != none() && (e == 0 || sorted[e] != sorted[e - 1]);
  }
  TIERING_DEVICE int64_t num_runs() const { return runs[nodes * per_node]; }
  TIERING_DEVICE int64_t id(int64_t run) const {
    return static_cast<int64_t>(sorted[starts[run]] & ((uint64_t{1} << id_bits) - 1));
  }
  /// What orders the runs, but for equal visits: the frontier node, above how many visits the run lacks.
  TIERING_DEVICE uint64_t rank(int64_t run) const {
    const uint64_t node = sorted[starts[run]] >> id_bits, count = starts[run + 1] - starts[run];
    return node << count_bits | (static_cast<uint64_t>(per_node) - count);
  }
};

namespace {

/// How walks go.
struct Walks {
  const WalkRelation* relations;
  const int32_t* path;
  int32_t steps;
  int64_t num_walks, walk_length;
  uint64_t restart, stream;
  NodeKeys keys;
};

/// One step from `node`; -1 where the walk ends.
template <typename Index>
TIERING_DEVICE int64_t step(const AdjacencyTable<Index>& table, int64_t node, int64_t num_src, int64_t walk,
                            Stream& random, Faults* faults) {
  const NeighbourList<Index> list = table.list(node);
  if (list.degree < 0) atomicMin(&faults->column, static_cast<unsigned long long>(node));
  if (list.degree <= 0) return -1;
  const auto id = static_cast<int64_t>(list.ids[random.below(static_cast<uint64_t>(list.degree))]);
  if (id >= 0 && id < num_src) return id;
  atomicMin(&faults->edge, static_cast<unsigned long long>(walk));  // the host says which edge
  return -1;
}

/// A round over the metapath; -1 where the walk ends on the way.
TIERING_DEVICE int64_t round_from(int64_t node, const Walks& walks, int64_t walk, Stream& random, Faults* faults) {
  for (int32_t s = 0; s < walks.steps && node >= 0; ++s) {
    const WalkRelation& relation = walks.relations[walks.path[s]];
    node = relation.is_wide ? step(relation.wide, node, relation.num_src, walk, random, faults)
                            : step(relation.narrow, node, relation.num_src, walk, random, faults);
  }
  return node;
}

/// One walk each. A round's visits lie side by side, so that neighbouring threads write neighbouring words.
__global__ void walk_all(Walks walks, FrontierView frontier, int64_t begin, Visits visits, Faults* faults) {
  const int64_t first = frontier.first(), size = frontier.size(), count = visits.nodes * walks.num_walks;
  const uint64_t stride = walk_stride(walks.walk_length, static_cast<uint64_t>(walks.steps));
  for (int64_t walk = first_item(); walk < count; walk += item_stride()) {
    const int64_t i = walk / walks.num_walks;
    int64_t node = -1;
    if (begin + i < size) node = frontier.nodes[first + begin + i];
    if (node >= walks.relations[walks.path[0]].num_dst) node = -1;  // of a type without nodes: a fault already
    Stream random(walks.stream, node < 0 ? 0 : walks.keys.key_of(node));
    random.skip(stride * static_cast<uint64_t>(walk % walks.num_walks));
    for (int64_t round = 0; round < walks.walk_length; ++round) {
      if (node >= 0) node = round_from(node, walks, walk, random, faults);
      visits.sorted[round * count + walk] = node < 0 ? visits.none() : visits.of(i, node);
      if (node >= 0 && round + 1 < walks.walk_length && !walk_goes_on(random, walks.restart)) node = -1;
    }
  }
}

/// 1 where a run begins, else 0; 0 behind the last.
__global__ void mark_runs(Visits visits) {
  const int64_t size = visits.nodes * visits.per_node;
  for (int64_t e = first_item(); e <= size; e += item_stride()) visits.runs[e] = e < size && visits.begins_run(e);
}

__global__ void write_starts(Visits visits) {
  const int64_t size = visits.nodes * visits.per_node;
  for (int64_t e = first_item(); e < size; e += item_stride()) {
    if (visits.begins_run(e)) visits.starts[visits.runs[e]] = static_cast<uint32_t>(e);
    if (visits.sorted[e] != visits.none() && (e + 1 == size || visits.sorted[e + 1] == visits.none()))
      visits.starts[visits.runs[e + 1]] = static_cast<uint32_t>(e + 1);
  }
}

/// The keys that equal visits go by. What is behind the last run is ordered last afterwards.
__global__ void read_keys(Visits visits, NodeKeys keys, uint64_t* out, uint32_t* runs) {
  const int64_t size = visits.nodes * visits.per_node, count = visits.num_runs();
  for (int64_t r = first_item(); r < size; r += item_stride()) {
    out[r] = r < count ? keys.key_of(visits.id(r)) : 0;
    runs[r] = static_cast<uint32_t>(r);
  }
}

/// `by_key`: whether `runs` is in the order of the keys already; else the runs are, and it is written.
__global__ void read_ranks(Visits visits, bool by_key, uint64_t* out, uint32_t* runs) {
  const int64_t size = visits.nodes * visits.per_node, count = visits.num_runs();
  for (int64_t p = first_item(); p < size; p += item_stride()) {
    if (!by_key) runs[p] = static_cast<uint32_t>(p);
    out[p] = runs[p] < count ? visits.rank(runs[p]) : static_cast<uint64_t>(visits.nodes) << visits.count_bits;
  }
}

/// The runs of a turn, most visits first per frontier node.
struct Ranked {
  uint64_t* ranks;
  uint32_t* runs;
  uint32_t* firsts;  ///< per frontier node, where its runs begin
  uint32_t* taken;   ///< per frontier node, edges; afterwards their prefix sums
};

/// Where the ranks of frontier node `node` begin.
TIERING_DEVICE int64_t begin_of(int64_t node, const Visits& visits, const uint64_t* ranks) {
  int64_t low = 0, high = visits.nodes * visits.per_node;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (ranks[middle] >> visits.count_bits < static_cast<uint64_t>(node))
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

__global__ void count_taken(Visits visits, Ranked ranked, int64_t fanout) {
  for (int64_t i = first_item(); i <= visits.nodes; i += item_stride()) {
    ranked.taken[i] = 0;
    if (i == visits.nodes) continue;
    const int64_t begin = begin_of(i, visits, ranked.ranks), found = begin_of(i + 1, visits, ranked.ranks) - begin;
    ranked.firsts[i] = static_cast<uint32_t>(begin);
    ranked.taken[i] = static_cast<uint32_t>(fanout < 0 || found < fanout ? found : fanout);
  }
}

/// Writes the edges behind the `before` that there are.
__global__ void write_walked(Visits visits, Ranked ranked, FrontierView frontier, int64_t begin, const int64_t* before,
                             WalkedEdges edges) {
  const int64_t size = visits.nodes * visits.per_node, first = frontier.first() + begin;
  for (int64_t p = first_item(); p < size; p += item_stride()) {
    const auto i = static_cast<int64_t>(ranked.ranks[p] >> visits.count_bits);
    if (i >= visits.nodes) continue;
    const int64_t place = p - ranked.firsts[i];
    if (place >= ranked.taken[i + 1] - ranked.taken[i]) continue;
    const int64_t e = *before + ranked.taken[i] + place;
    const uint64_t lacking = ranked.ranks[p] & ((uint64_t{1} << visits.count_bits) - 1);
    edges.dst[e] = static_cast<int32_t>(first + i);
    edges.weights[e] = static_cast<float>(static_cast<uint64_t>(visits.per_node) - lacking);
    edges.slots[e] = edges.sources.reach(visits.id(ranked.runs[p]), static_cast<uint32_t>(e), DeviceAtomics{});
  }
}

__global__ void add_taken(const uint32_t* taken, int64_t* total) {
  if (first_item() == 0) *total += *taken;
}

/// A vector's copy on the device.
template <typename T>
DeviceMemory upload(const std::vector<T>& values) {
  const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
  DeviceMemory memory(std::max<int64_t>(bytes, 1));
  const GpuStream stream;
  copy_async(memory.data(), values.data(), bytes, stream.get(), "uploading metapaths");
  stream.synchronize();
  return memory;
}

}  // namespace

GpuWalks::GpuWalks(const GpuSamplerConfig& config) : config_(config), total_(sizeof(int64_t)) {
  std::vector<WalkRelation> relations;
  for (const GpuRelation& given : config.relations) {
    WalkRelation& made = relations.emplace_back();
    made.is_wide = std::holds_alternative<AdjacencyTable<int64_t>>(given.table);
    if (made.is_wide)
      made.wide = std::get<AdjacencyTable<int64_t>>(given.table);
    else
      made.narrow = std::get<AdjacencyTable<int32_t>>(given.table);
    made.num_src = config.num_nodes[static_cast<size_t>(given.src_type)];
    made.num_dst = config.num_nodes[static_cast<size_t>(given.dst_type)];
  }
  std::vector<int32_t> paths;
  for (const auto& path : config.walks.metapaths) {
    path_begins_.push_back(static_cast<int64_t>(paths.size()));
    paths.insert(paths.end(), path.begin(), path.end());
  }
  relations_ = upload(relations);
  paths_ = upload(paths);
}

int GpuWalks::src_type(size_t metapath) const {
  return config_.relations[static_cast<size_t>(config_.walks.metapaths[metapath].back())].src_type;
}

int GpuWalks::dst_type(size_t metapath) const {
  return config_.relations[static_cast<size_t>(config_.walks.metapaths[metapath].front())].dst_type;
}

int64_t GpuWalks::most_edges(size_t metapath, int64_t fanout) const {
  const int64_t nodes = config_.num_nodes[static_cast<size_t>(src_type(metapath))];
  const int64_t most = std::min(visits_per_node(), std::max<int64_t>(1, nodes));  // without nodes: a fault is found
  return fanout < 0 ? most : std::min(most, fanout);
}

void GpuWalks::run(const WalkTask& task, const WalkedEdges& edges, Faults* faults, cudaStream_t stream) {
  check(cudaMemsetAsync(total_.data(), 0, sizeof(int64_t), stream), "clearing sizes");
  const int64_t turn = std::max<int64_t>(1, config_.visits_at_a_time / visits_per_node());
  for (int64_t begin = 0; begin < task.frontier_bound; begin += turn)
    run_turn(task, begin, std::min(turn, task.frontier_bound - begin), edges, faults, stream);
}

void GpuWalks::run_turn(const WalkTask& task, int64_t begin, int64_t nodes, const WalkedEdges& edges, Faults* faults,
                        cudaStream_t stream) {
  const int64_t size = nodes * visits_per_node();
  const auto src = static_cast<size_t>(src_type(task.metapath));
  const Visits visits{nodes,
                      visits_per_node(),
                      bits_of(config_.num_nodes[src]),
                      bits_of(visits_per_node()),
                      sorted_.require(size),
                      runs_.require(size + 1),
                      starts_.require(size + 1)};
  (void)keys_.require(size);
  (void)other_keys_.require(size);
  (void)values_.require(size);
  (void)other_values_.require(size);
  walk(task, begin, visits, faults, stream);
  count(visits, stream);
  order(visits, config_.node_keys[src], stream);
  const Ranked ranked{other_keys_.data(), other_values_.data(), firsts_.require(nodes), taken_.require(nodes + 1)};
  launch_over("taking the most visited", count_taken, nodes + 1, stream, visits, ranked, task.fanout);
  prefix_sums(ranked.taken, nodes + 1, temporary_, stream);
  launch_over("writing edges", write_walked, size, stream, visits, ranked, task.frontier, begin, total(), edges);
  launch_over("counting edges", add_taken, 1, stream, ranked.taken + nodes, total_.as<int64_t>());
}

/// Leaves the visits sorted.
void GpuWalks::walk(const WalkTask& task, int64_t begin, const Visits& visits, Faults* faults, cudaStream_t stream) {
  const auto& path = config_.walks.metapaths[task.metapath];
  const Walks walks{relations_.as<WalkRelation>(),
                    paths_.as<int32_t>() + path_begins_[task.metapath],
                    static_cast<int32_t>(path.size()),
                    config_.walks.num_walks,
                    config_.walks.walk_length,
                    config_.walks.restart,
                    task.stream,
                    config_.node_keys[static_cast<size_t>(dst_type(task.metapath))]};
  Visits unsorted = visits;
  unsorted.sorted = keys_.data();
  launch_on(config_.max_sms, "walking", walk_all, visits.nodes * walks.num_walks, stream, walks, task.frontier, begin,
            unsorted, faults);
  sort_keys(keys_.data(), visits.sorted, visits.size(), visits.id_bits + visits.node_bits(), temporary_, stream);
}

/// Finds the runs.
void GpuWalks::count(const Visits& visits, cudaStream_t stream) {
  launch_over("counting visits", mark_runs, visits.size() + 1, stream, visits);
  prefix_sums(visits.runs, visits.size() + 1, temporary_, stream);
  launch_over("counting visits", write_starts, visits.size(), stream, visits);
}

/// Puts the runs in order: ranks in `other_keys_`, runs in `other_values_`. Keys of 32 bits are ordered as those of 64
/// that they stand for.
void GpuWalks::order(const Visits& visits, const NodeKeys& keys, cudaStream_t stream) {
  const int64_t size = visits.size();
  const bool by_key = keys.host != nullptr;
  if (by_key) {
    launch_on(config_.max_sms, "reading keys", read_keys, size, stream, visits, keys, keys_.data(),
              other_values_.data());
    sort_pairs({keys_.data(), other_values_.data()}, {other_keys_.data(), values_.data()}, size, keys.wide ? 64 : 32,
               temporary_, stream);
  }
  launch_over("ordering visits", read_ranks, size, stream, visits, by_key, keys_.data(), values_.data());
  sort_pairs({keys_.data(), values_.data()}, {other_keys_.data(), other_values_.data()}, size,
             visits.count_bits + visits.node_bits(), temporary_, stream);
}

int64_t GpuWalks::device_bytes() const {
  return relations_.size() + paths_.size() + total_.size() + temporary_.capacity() +
         8 * (sorted_.capacity() + keys_.capacity() + other_keys_.capacity()) +
         4 * (values_.capacity() + other_values_.capacity() + runs_.capacity() + starts_.capacity() +
              taken_.capacity() + firsts_.capacity());
}

}  // namespace tiering::cuda
