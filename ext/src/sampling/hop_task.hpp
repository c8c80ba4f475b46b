// The inputs and outputs of one hop under any rule, and the errors of damaged adjacency.
#pragma once

#include "tiering/errors.hpp"
#include "tiering/sampling/node_table.hpp"
#include "tiering/sampling/sampler.hpp"

namespace tiering {

/// Where a list lies in the relation's indices.
struct ListRange {
  int64_t begin, degree;
};

/// The inputs and outputs of one hop over one relation or metapath.
struct HopTask {
  const SamplerConfig* config = nullptr;
  const RelationView* relation = nullptr;        // but for walks
  const std::vector<int>* metapath = nullptr;    // of walks
  int64_t num_src = 0;                           // nodes of the source type
  IdSpan destination_keys = {};                  // node keys of the type that asks
  IdSpan source_keys = {};                       // and of the type that is reached
  int64_t fanout = 0;                            // as the rule means it; -1: all
  uint64_t stream = 0;                           // folded (seed, epoch, batch, hop, group)
  int64_t frontier_begin = 0, frontier_end = 0;  // the frontier is a range of the destination type's list
  int64_t known = 0;                             // nodes of the source type found before this hop
  NodeTable* sources = nullptr;
  const GrowingArray<int64_t>* destinations = nullptr;  // may be the list of the same table
  SampledEdges* edges = nullptr;                        // null: nobody wants the edges
  bool want_positions = false;
  const std::vector<int64_t*>* reads = nullptr;  // of walks, per relation: counters of lists read
  bool shared_reads = false;                     // whether other threads add to the same counters
  int id_bits = 62;                              // of the keys in both tables; the instance stands above
  const int64_t* clocks = nullptr;               // seed time of each instance, a word of TimeRule
  const ListRange* visible = nullptr;            // of relations with times, of the frontier's nodes, if known by now

  int64_t node_of(int64_t key) const { return key & ((int64_t{1} << id_bits) - 1); }
  int64_t instance_of(int64_t key) const { return key >> id_bits; }
};

/// Memory of a hop, kept from hop to hop: places in indices, which become ids, or ids apart, and how many a node takes.
struct HopScratch {
  GrowingArray<int64_t> places, ids;
  GrowingArray<int32_t> taken;
};

[[noreturn, gnu::cold, gnu::noinline]] inline void throw_bad_list(int64_t node, int64_t begin, int64_t end,
                                                                  int64_t num_indices) {
  throw InputError("column " + std::to_string(node) + ": indptr says entries " + std::to_string(begin) + " to " +
                       std::to_string(end) + ", but there are " + std::to_string(num_indices) + " indices",
                   InputError::Subject::adjacency);
}

/// The list of `node`. Throws unless it lies within the relation's indices.
inline ListRange checked_list(const RelationView& relation, int64_t node) {
  const int64_t begin = relation.indptr[node], end = relation.indptr[node + 1];
  if (begin < 0 || end < begin || end > relation.indices.size) [[unlikely]]
    throw_bad_list(node, begin, end, relation.indices.size);
  return {begin, end - begin};
}

/// Throws that indices[place] is no node of the source type.
[[noreturn]] inline void throw_bad_index(int64_t place, int64_t id, int64_t num_src) {
  throw InputError("indices[" + std::to_string(place) + "]: source id " + std::to_string(id) + " is outside 0.." +
                       std::to_string(num_src - 1),
                   InputError::Subject::adjacency);
}

/// Throws unless a table of `size` nodes may take `extra` more.
inline void check_room(int64_t size, int64_t extra) {
  TIERING_EXPECT(size + extra < INT32_MAX,
                 "a batch may reach at most 2^31 - 1 nodes of one type: use fewer seeds or smaller fanouts");
}

}  // namespace tiering
