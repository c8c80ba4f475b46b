// Hops of disjoint batches, and the edges of induced ones.
#include "relation_hop.hpp"

namespace tiering {

template <typename Draw>
void run_disjoint_hop(const HopTask& task, Draw& draw, HopScratch& scratch) {
  RelationHop<Draw, true>(task, draw, scratch).run();
}

template void run_disjoint_hop(const HopTask&, UniformDraw&, HopScratch&);
template void run_disjoint_hop(const HopTask&, ReplacementDraw&, HopScratch&);
template void run_disjoint_hop(const HopTask&, WeightedDraw&, HopScratch&);

namespace {

constexpr int64_t kChunk = 64;  // entries between prefetching a slot of the table and looking at it

/// Writes the edges of at most kChunk entries.
template <typename Index>
void write_chunk(const HopTask& task, int64_t i, int64_t begin, int64_t end, const Index* ids) {
  const int64_t key = (*task.destinations)[i], instance = key - task.node_of(key);
  SampledEdges& edges = *task.edges;
  for (int64_t place = begin; place < end; ++place) {
    const auto id = static_cast<int64_t>(ids[place - begin]);
    if (static_cast<uint64_t>(id) >= static_cast<uint64_t>(task.num_src)) [[unlikely]]
      throw_bad_index(place, id, task.num_src);
    task.sources->prefetch(instance | id);
  }
  int64_t at = edges.extend(end - begin, task.want_positions, false);
  for (int64_t place = begin; place < end; ++place) {
    const int32_t source = task.sources->find(instance | static_cast<int64_t>(ids[place - begin]));
    edges.src[at] = source;
    edges.dst[at] = static_cast<int32_t>(i);
    if (task.want_positions) edges.positions[at] = place;
    at += source >= 0;
  }
  edges.set_size(at, task.want_positions);
}

}  // namespace

template <typename Index>
void write_known_edges(const HopTask& task, int64_t i, int64_t begin, int64_t end, const Index* ids) {
  for (int64_t at = begin; at < end; at += kChunk)
    write_chunk(task, i, at, std::min(at + kChunk, end), ids + at - begin);
}

template void write_known_edges(const HopTask&, int64_t, int64_t, int64_t, const int64_t*);

void write_induced_edges(const HopTask& task) {
  task.relation->indices.visit([&](const auto& indices) {
    for (int64_t i = task.frontier_begin; i < task.frontier_end; ++i) {
      const int64_t key = (*task.destinations)[i];
      ListRange list = checked_list(*task.relation, task.node_of(key));
      keep_visible(task, &key, 1, &list);
      write_known_edges(task, i, list.begin, list.begin + list.degree, indices.data() + list.begin);
    }
  });
}

}  // namespace tiering
