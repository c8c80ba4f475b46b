#include <algorithm>
#include <bit>
#include <tiering/cuda/launch.hpp>
#include <tiering/sampling/exponential.hpp>

#include "layers.hpp"
#include "prefix_sums.hpp"
#include "sort_pairs.hpp"

namespace tiering::cuda {

/// The edges into the frontier, list by list.
struct LayerEdges {
  int64_t count;
  int64_t frontier_bound;
  const int64_t* begins;  ///< per frontier node its first edge; behind the last, how many there are
  const int64_t* places;  ///< per frontier node the address of its list divided by the size of an index
  const int64_t* firsts;  ///< per frontier node the first place of its list in the relation's indices
  uint32_t* owners;       ///< per edge its frontier node
  uint32_t* sources;      ///< per edge its source: slot in the table of candidates, then the candidate's number
  uint32_t* kept;         ///< count + 1: marks of the edges that are kept, then prefix sums

  TIERING_DEVICE int64_t degree(int64_t e) const { return begins[owners[e] + 1] - begins[owners[e]]; }
};

/// The in-neighbours of the frontier, in order of discovery.
struct LayerCandidates {
  int64_t most;
  NodeSlots slots;      ///< by id, the first edge that leads to a candidate
  uint32_t* ranks;      ///< per edge and one more: marks of those first edges, then prefix sums
  const uint32_t* end;  ///< of `ranks`: how many candidates there are
  int64_t* ids;
  double* importance;
  uint32_t* starts;  ///< where a candidate's edges begin when they are sorted by candidate
  uint32_t* kept;    ///< most + 1: marks of the candidates that are kept, then prefix sums

  TIERING_DEVICE int64_t count() const { return *end; }
  /// Once the marks are prefix sums.
  TIERING_DEVICE bool is_kept(int64_t c) const { return kept[c + 1] != kept[c]; }
};

namespace {

template <typename Index>
__global__ void find_lists(AdjacencyTable<Index> table, FrontierView frontier, int64_t bound, int64_t num_dst,
                           int64_t* begins, int64_t* places, int64_t* firsts, Faults* faults) {
  const int64_t first = frontier.first(), size = frontier.size();
  for (int64_t i = first_item(); i <= bound; i += item_stride()) {
    begins[i] = 0;
    if (i >= size || i >= bound) continue;
    const int64_t node = frontier.nodes[first + i];
    if (node >= num_dst) continue;  // node 0 of a type without nodes: what led there is a fault already
    const NeighbourList<Index> list = table.list(node);
    if (list.degree < 0) {
      atomicMin(&faults->column, static_cast<unsigned long long>(node));
      continue;
    }
    begins[i] = list.degree;
    places[i] = static_cast<int64_t>(reinterpret_cast<uintptr_t>(list.ids) / sizeof(Index));
    firsts[i] = list.first;
  }
}

template <typename Index>
__global__ void reach_candidates(LayerEdges edges, LayerCandidates candidates, int64_t num_src, Faults* faults) {
  for (int64_t e = first_item(); e < edges.count; e += item_stride()) {
    const int64_t i = owner_of(e, edges.begins, edges.frontier_bound);
    const auto place = static_cast<uintptr_t>(edges.places[i] + (e - edges.begins[i]));
    auto id = static_cast<int64_t>(*reinterpret_cast<const Index*>(place * sizeof(Index)));
    if (id < 0 || id >= num_src) {
      atomicMin(&faults->edge, static_cast<unsigned long long>(e));
      id = 0;  // any: the batch is given up
    }
    edges.owners[e] = static_cast<uint32_t>(i);
    edges.sources[e] = candidates.slots.reach(id, static_cast<uint32_t>(e), DeviceAtomics{});
  }
}

__global__ void mark_discoveries(LayerEdges edges, LayerCandidates candidates) {
  for (int64_t e = first_item(); e <= edges.count; e += item_stride())
    candidates.ranks[e] =
        e < edges.count && candidates.slots.is_first(edges.sources[e], static_cast<uint32_t>(e)) ? 1 : 0;
}

/// Numbers the candidates; `out`: the edges to be sorted by them.
__global__ void number_candidates(LayerEdges edges, LayerCandidates candidates, KeyPairs out) {
  for (int64_t e = first_item(); e < edges.count; e += item_stride()) {
    const uint32_t slot = edges.sources[e];
    const int64_t c = candidates.slots.local_id(slot, 0, candidates.ranks);
    if (candidates.slots.is_first(slot, static_cast<uint32_t>(e))) candidates.ids[c] = candidates.slots.keys[slot];
    edges.sources[e] = static_cast<uint32_t>(c);
    out.keys[e] = static_cast<uint64_t>(c);
    out.values[e] = static_cast<uint32_t>(e);
  }
}

/// What each of the sorted edges adds to its candidate's importance.
__global__ void share_out(LayerEdges edges, LayerCandidates candidates, KeyPairs sorted, double* shares) {
  for (int64_t p = first_item(); p < edges.count; p += item_stride()) {
    const auto degree = static_cast<double>(edges.degree(sorted.values[p]));
    shares[p] = 1.0 / (degree * degree);
    if (p == 0 || sorted.keys[p] != sorted.keys[p - 1]) candidates.starts[sorted.keys[p]] = static_cast<uint32_t>(p);
  }
}

/// In the order of the edges.
__global__ void sum_shares(LayerEdges edges, LayerCandidates candidates, const double* shares) {
  const int64_t count = candidates.count();
  for (int64_t c = first_item(); c < count; c += item_stride()) {
    const int64_t end = c + 1 < count ? candidates.starts[c + 1] : edges.count;
    double sum = 0.0;
    for (int64_t p = candidates.starts[c]; p < end; ++p) sum += shares[p];
    candidates.importance[c] = sum;
  }
}

/// When each candidate's clock rings: doubles above zero, whose bits are in their order. Behind the candidates: never.
__global__ void wind_clocks(LayerCandidates candidates, NodeKeys keys, int64_t num_src, uint64_t stream, KeyPairs out) {
  const int64_t count = candidates.count();
  for (int64_t c = first_item(); c < candidates.most; c += item_stride()) {
    out.keys[c] = ~uint64_t{0};
    out.values[c] = static_cast<uint32_t>(c);
    if (c >= count || candidates.ids[c] >= num_src) continue;  // node 0 of a type without nodes: a fault already
    Stream random(stream, keys.key_of(candidates.ids[c]));
    out.keys[c] = std::bit_cast<uint64_t>(exponential(random.next()) / candidates.importance[c]);
  }
}

/// Marks the first `drawn` in `order`; all where it is null.
__global__ void keep_drawn(LayerCandidates candidates, const uint32_t* order, int64_t drawn) {
  const int64_t count = candidates.count();
  for (int64_t p = first_item(); p <= candidates.most; p += item_stride()) {
    const int64_t c = order == nullptr || p == candidates.most ? p : order[p];
    candidates.kept[c] = c < count && (order == nullptr || p < drawn) ? 1 : 0;
  }
}

__global__ void keep_known(LayerCandidates candidates, KnownNodes known) {
  for (int64_t i = first_item(); i < *known.count; i += item_stride()) {
    const int64_t slot = candidates.slots.find(known.nodes[i]);
    if (slot >= 0) candidates.kept[candidates.slots.local_id(static_cast<uint32_t>(slot), 0, candidates.ranks)] = 1;
  }
}

/// Enters the kept candidates in the table of the batch's nodes, in order.
__global__ void enter_kept(LayerCandidates candidates, NodeSlots sources, uint32_t* found, int64_t* num_kept) {
  for (int64_t c = first_item(); c < candidates.most; c += item_stride())
    if (candidates.is_kept(c)) {
      const uint32_t number = candidates.kept[c];
      found[number] = sources.reach(candidates.ids[c], number, DeviceAtomics{});
    }
  if (first_item() == 0) *num_kept = candidates.kept[candidates.most];
}

__global__ void mark_kept(LayerEdges edges, LayerCandidates candidates) {
  for (int64_t e = first_item(); e <= edges.count; e += item_stride())
    edges.kept[e] = e < edges.count && candidates.is_kept(edges.sources[e]) ? 1 : 0;
}

/// Writes the edges from kept candidates, and their weights before these are scaled.
__global__ void write_kept(LayerEdges edges, LayerCandidates candidates, const int32_t* local_ids,
                           FrontierView frontier, LayerOutput out, double* weights) {
  const int64_t first = frontier.first();
  for (int64_t e = first_item(); e < edges.count; e += item_stride()) {
    const uint32_t at = edges.kept[e], c = edges.sources[e];
    if (edges.kept[e + 1] == at) continue;
    const int64_t i = edges.owners[e];
    out.src[at] = local_ids[candidates.kept[c]];
    out.dst[at] = static_cast<int32_t>(first + i);
    if (out.positions != nullptr) out.positions[at] = edges.firsts[i] + (e - edges.begins[i]);
    weights[at] = 1.0 / candidates.importance[c];
  }
  if (first_item() == 0) *out.num_edges = edges.kept[edges.count];
}

/// Per destination, in the order of its edges.
__global__ void sum_weights(LayerEdges edges, const double* weights, double* sums) {
  for (int64_t i = first_item(); i < edges.frontier_bound; i += item_stride()) {
    const int64_t end = edges.kept[edges.begins[i + 1]];
    double sum = 0.0;
    for (int64_t at = edges.kept[edges.begins[i]]; at < end; ++at) sum += weights[at];
    sums[i] = sum;
  }
}

__global__ void scale_weights(LayerEdges edges, FrontierView frontier, const double* weights, const double* sums,
                              LayerOutput out) {
  const int64_t first = frontier.first(), total = edges.kept[edges.count];
  for (int64_t at = first_item(); at < total; at += item_stride())
    out.weights[at] = static_cast<float>(weights[at] / sums[out.dst[at] - first]);
}

}  // namespace

const int64_t* GpuLayer::find_lists(const GpuRelation& relation, const LayerTask& task, const FrontierView& frontier,
                                    Faults* faults, cudaStream_t stream) {
  task_ = task;
  const int64_t bound = task.frontier_bound;
  int64_t* const begins = begins_.require(bound + 1);
  std::visit(
      [&]<typename Index>(const AdjacencyTable<Index>& table) {
        launch_on(task.max_sms, "finding lists", tiering::cuda::find_lists<Index>, bound + 1, stream, table, frontier,
                  bound, task.num_dst, begins, places_.require(bound), firsts_.require(bound), faults);
      },
      relation.table);
  prefix_sums(begins, bound + 1, temporary_, stream);
  return begins + bound;
}

LayerEdges GpuLayer::edges() const {
  return {num_edges_,     task_.frontier_bound, begins_.data(),  places_.data(),
          firsts_.data(), owners_.data(),       sources_.data(), values_.data()};
}

LayerCandidates GpuLayer::candidates() const {
  return {most_candidates_, {slot_keys_.data(), slot_values_.data(), NodeSlots::bits_for(most_candidates_)},
          ranks_.data(),    ranks_.data() + num_edges_,
          ids_.data(),      importance_.data(),
          starts_.data(),   kept_.data()};
}

void GpuLayer::draw(const GpuRelation& relation, int64_t num_edges, const KnownNodes& known, Faults* faults,
                    cudaStream_t stream) {
  num_edges_ = num_edges;
  // One at least: what leads to no node is entered as node 0.
  most_candidates_ = std::min(num_edges, std::max<int64_t>(1, task_.num_src));
  most_kept_ = task_.fanout < 0 ? most_candidates_ : std::min(most_candidates_, task_.fanout + known.bound);
  make_room();
  collect(relation, faults, stream);
  weigh(stream);
  choose(known, stream);
}

void GpuLayer::make_room() {
  const int64_t slots = int64_t{1} << NodeSlots::bits_for(most_candidates_);
  (void)slot_keys_.require(slots);
  (void)slot_values_.require(slots);
  for (auto* const array : {&owners_, &sources_, &sorted_values_}) (void)array->require(num_edges_);
  for (auto* const array : {&ranks_, &values_}) (void)array->require(num_edges_ + 1);
  for (auto* const array : {&keys_, &sorted_keys_}) (void)array->require(num_edges_);
  (void)shares_.require(num_edges_);
  (void)ids_.require(most_candidates_);
  (void)importance_.require(most_candidates_);
  (void)starts_.require(most_candidates_);
  (void)kept_.require(most_candidates_ + 1);
}

/// Finds the candidates.
void GpuLayer::collect(const GpuRelation& relation, Faults* faults, cudaStream_t stream) {
  const LayerCandidates candidates = this->candidates();
  const size_t slots = size_t{1} << candidates.slots.bits;
  check(cudaMemsetAsync(candidates.slots.keys, 0xff, slots * sizeof(int64_t), stream), "clearing a table");
  check(cudaMemsetAsync(candidates.slots.values, 0xff, slots * sizeof(uint32_t), stream), "clearing a table");
  std::visit(
      [&]<typename Index>(const AdjacencyTable<Index>&) {
        launch_on(task_.max_sms, "reading neighbours", reach_candidates<Index>, num_edges_, stream, edges(), candidates,
                  task_.num_src, faults);
      },
      relation.table);
  launch_over("marking candidates", mark_discoveries, num_edges_ + 1, stream, edges(), candidates);
  prefix_sums(candidates.ranks, num_edges_ + 1, temporary_, stream);
}

/// Sums the candidates' importance.
void GpuLayer::weigh(cudaStream_t stream) {
  const KeyPairs pairs{keys_.data(), values_.data()}, sorted{sorted_keys_.data(), sorted_values_.data()};
  launch_over("numbering candidates", number_candidates, num_edges_, stream, edges(), candidates(), pairs);
  sort_pairs(pairs, sorted, num_edges_, bits_of(most_candidates_), temporary_, stream);
  launch_over("weighing candidates", share_out, num_edges_, stream, edges(), candidates(), sorted, shares_.data());
  launch_over("weighing candidates", sum_shares, most_candidates_, stream, edges(), candidates(), shares_.data());
}

/// Marks the candidates that are kept.
void GpuLayer::choose(const KnownNodes& known, cudaStream_t stream) {
  const KeyPairs clocks{keys_.data(), values_.data()}, sorted{sorted_keys_.data(), sorted_values_.data()};
  const bool all = task_.fanout < 0 || task_.fanout >= most_candidates_;
  if (!all) {
    launch_on(task_.max_sms, "drawing", wind_clocks, most_candidates_, stream, candidates(), task_.keys, task_.num_src,
              task_.stream, clocks);
    sort_pairs(clocks, sorted, most_candidates_, 64, temporary_, stream);
  }
  launch_over("drawing", keep_drawn, most_candidates_ + 1, stream, candidates(), all ? nullptr : sorted.values,
              task_.fanout);
  launch_over("keeping known nodes", keep_known, known.bound, stream, candidates(), known);
  prefix_sums(kept_.data(), most_candidates_ + 1, temporary_, stream);
}

void GpuLayer::enter(const NodeSlots& sources, uint32_t* found, cudaStream_t stream) {
  launch_over("entering drawn nodes", enter_kept, most_candidates_, stream, candidates(), sources, found,
              num_kept_.as<int64_t>());
}

void GpuLayer::write(const FrontierView& frontier, const LayerOutput& out, cudaStream_t stream) {
  const int64_t bound = task_.frontier_bound;
  double* const sums = sums_.require(bound);
  launch_over("marking edges", mark_kept, num_edges_ + 1, stream, edges(), candidates());
  prefix_sums(values_.data(), num_edges_ + 1, temporary_, stream);
  launch_over("writing edges", write_kept, num_edges_, stream, edges(), candidates(), local_ids_.data(), frontier, out,
              shares_.data());
  launch_over("weighing edges", sum_weights, bound, stream, edges(), shares_.data(), sums);
  launch_over("weighing edges", scale_weights, num_edges_, stream, edges(), frontier, shares_.data(), sums, out);
}

int64_t GpuLayer::device_bytes() const {
  return 8 * (begins_.capacity() + places_.capacity() + firsts_.capacity() + sums_.capacity() + shares_.capacity() +
              keys_.capacity() + sorted_keys_.capacity() + slot_keys_.capacity() + ids_.capacity() +
              importance_.capacity()) +
         4 * (owners_.capacity() + sources_.capacity() + ranks_.capacity() + values_.capacity() +
              sorted_values_.capacity() + slot_values_.capacity() + starts_.capacity() + kept_.capacity() +
              local_ids_.capacity()) +
         num_kept_.size() + temporary_.capacity();
}

}  // namespace tiering::cuda
