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
  if (frontier_bound == 0) return pass(group);
  const int64_t bound = frontier_bound * m.walks->most_edges(path, fanout);
  TIERING_EXPECT(bound < kMostLocal, "a hop may draw at most 2^31 - 1 edges: use fewer seeds or smaller fanouts");
  grow_nodes(static_cast<int>(src), m.types[src].bound + bound);
  GroupEdges& kept = m.groups[group];
  const WalkTask task{path, fanout, stream_key(group), frontier(dst, hop), frontier_bound};
  m.walks->run(task,
               {kept.dst.require(bound), kept.weights.require(bound), m.found.require(bound), m.types[src].slots()},
               m.faults.as<Faults>(), stream_);
  number(static_cast<int>(src), bound, {m.walks->total()}, kept.src.require(bound), m.num_edges(group));
}

/// A hop of layer-wise sampling over one relation.
void GpuSampler::sample_layer(int hop, int relation) {
  Memory& m = *memory_;
  GpuLayer& layer = *m.layer;
  const auto h = static_cast<size_t>(hop), r = static_cast<size_t>(relation), group = h * config_.num_groups() + r;
  const GpuRelation& of = config_.relations[r];
  const auto src = static_cast<size_t>(of.src_type), dst = static_cast<size_t>(of.dst_type);
  const int64_t fanout = config_.fanouts[h][r], frontier_bound = fanout == 0 ? 0 : read_sizes(dst);
  if (frontier_bound == 0) return pass(group);
  const LayerTask task{config_.num_nodes[src], config_.num_nodes[dst], fanout,         stream_key(group),
                       config_.node_keys[src], frontier_bound,         config_.max_sms};
  Faults* const faults = m.faults.as<Faults>();
  const int64_t edges = true_size(layer.find_lists(of, task, frontier(dst, hop), faults, stream_));
  if (edges == 0) return pass(group);
  TIERING_EXPECT(edges < kMostLocal, "a hop may read at most 2^31 - 1 edges: use fewer seeds or smaller fanouts");
  const KnownNodes known{m.types[src].nodes.data(), m.known_after(m.hop_start) + src, m.bound_at_start[src]};
  layer.draw(of, edges, known, faults, stream_);
  const int64_t kept_bound = layer.most_kept();
  grow_nodes(of.src_type, m.types[src].bound + kept_bound);
  layer.enter(m.types[src].slots(), m.found.require(kept_bound), stream_);
  number(of.src_type, kept_bound, {layer.num_kept()}, layer.local_ids(), nullptr);
  GroupEdges& out = m.groups[group];
  layer.write(
      frontier(dst, hop),
      {out.src.require(edges), out.dst.require(edges), config_.positions ? out.positions.require(edges) : nullptr,
       out.weights.require(edges), m.num_edges(group)},
      stream_);
}

}  // namespace tiering::cuda
