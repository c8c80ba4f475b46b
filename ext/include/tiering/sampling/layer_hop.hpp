// One hop of layer-wise importance sampling (LADIES): one draw of nodes for the whole frontier.
#pragma once

#include <cstdint>

#include "tiering/sampling/growing_array.hpp"
#include "tiering/sampling/node_table.hpp"
#include "tiering/sampling/sampler.hpp"

namespace tiering {

/// What one hop over one relation reads and where it puts its result.
struct LayerTask {
  const RelationView* relation;
  int64_t num_src;         // nodes of the source type
  IdArray source_keys;     // node keys of the source type
  int64_t fanout;          // nodes to draw for the layer, -1 = all candidates
  uint64_t stream;         // folded (seed, epoch, batch, hop, relation)
  int64_t frontier_begin;  // the frontier is a range of the destination type's list
  int64_t frontier_end;
  int64_t known;       // nodes of the source type found before this hop: kept without being drawn
  NodeTable* sources;  // may be the same table as destinations
  NodeTable* destinations;
  SampledEdges* edges;  // null: nobody wants the edges
  bool want_positions;
};

/// Memory: 28 bytes per candidate, 16 more while drawing, and 4 per edge into the frontier where edges are
/// wanted. Reused from hop to hop.
class LayerHop {
 public:
  void run(const LayerTask& task);

 private:
  static constexpr int64_t kChunk = 256;
  static constexpr int64_t kAhead = 24;
  static constexpr int32_t kLeftOut = -2, kKept = -1;

  /// Edges on their way into the candidate table.
  struct Chunk {
    int64_t size = 0;
    int64_t ids[kChunk];
    double shares[kChunk];
  };
  /// A candidate and when its exponential clock rings.
  struct Clock {
    double rings;
    int64_t candidate;
  };

  template <typename Index>
  void collect(const Index* indices);
  template <typename Index>
  void read_ids(const Index* indices, int64_t first, int64_t size, double share, Chunk& chunk);
  void add(Chunk& chunk);
  void draw();
  void keep_known();
  void number_kept();
  void write_edges();
  int64_t count_edges() const;

  const LayerTask* task_ = nullptr;
  NodeTable candidates_;               // in-neighbours of the frontier, in order of discovery
  GrowingArray<double> importance_;    // of each candidate
  GrowingArray<int32_t> state_;        // of each candidate: kLeftOut, kKept, or its place in the sources
  GrowingArray<Clock> clocks_;         //
  GrowingArray<int32_t> edge_source_;  // candidate of every edge into the frontier
  GrowingArray<double> row_;           // unscaled weights of one destination
  Chunk chunks_[2];
};

}  // namespace tiering
