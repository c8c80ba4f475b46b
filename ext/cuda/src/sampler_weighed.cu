// Hops of the rules that weigh their edges: random walks and layers.
#include <tiering/errors.hpp>

#include "sampler_memory.hpp"

namespace tiering::cuda {

/// A hop of random walks over one metapath.
void GpuSampler::walk(int hop, int metapath) {
  Memory& m = *memory_;
  const auto h = static_cast<size_t>(hop), path = static_cast<size_t>(metapath);
  const size_t group = h * config_.num_groups() + path;
  const auto src = static_cast<size_t>(m.walks->src_type(path)), dst = static_cast<size_t>(m.walks->dst_type(path));
  const int64_t fanout = config_.fanouts[h][path];
  int64_t frontier_bound = m.bound_at_start[dst];
  if (fanout == 0 || frontier_bound == 0) return pass(group);
  if (frontier_bound * m.walks->visits_per_node() > kMostUnseen) frontier_bound = read_sizes(dst);
  const int64_t bound = frontier_bound * m.walks->most_edges(path, fanout);
  if (bound == 0) return pass(group);
  TIERING_EXPECT(bound < kMostLocal, "a hop may draw at most 2^31 - 1 edges: use fewer seeds or smaller fanouts");
  grow_nodes(static_cast<int>(src), m.types[src].bound + bound);
  GroupEdges& kept = m.groups[group];
  const WalkTask task{path, fanout, stream_key(group), frontier(dst, hop), frontier_bound};
  m.walks->run(task,
               {kept.dst.require(bound), kept.weights.require(bound), m.found.require(bound), m.types[src].slots()},
               m.faults.as<Faults>(), stream_);
  number(static_cast<int>(src), bound, {m.walks->total()}, kept.src.require(bound), m.num_edges(group));
}

}  // namespace tiering::cuda
