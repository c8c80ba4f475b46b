// Where the neighbor lists of a relation lie, as one kernel sees them: the hottest columns in the memory of the GPU, all
// in host memory. The same header serves the GPU and, with addresses of host memory, the CPU.
#pragma once

#include <cstdint>
#include <tiering/device/qualifiers.hpp>

namespace tiering {

/// A neighbor list in whatever memory it lies.
template <typename Index>
struct NeighborList {
  const Index* ids = nullptr;
  const uint64_t* sums = nullptr;  ///< running sums of its weights; null where there are none
  int64_t first = 0;               ///< its first place in the relation's indices
  int64_t degree = 0;
};

/// Lists of some columns, one behind the other.
template <typename Index>
struct AdjacencyPart {
  const int64_t* begins = nullptr;  ///< begin of each column's list in `indices`, and the end of the last
  const Index* indices = nullptr;
  const uint64_t* sums = nullptr;  ///< along indices; null unless the draw is weighted
  int64_t num_edges = 0;           ///< entries of `indices`

  TIERING_SHARED constexpr NeighborList<Index> list(int64_t column) const {
    const int64_t begin = begins[column], end = begins[column + 1];
    if (begin < 0 || end < begin || end > num_edges) return {nullptr, nullptr, 0, -1};  // not sound
    return {indices + begin, sums == nullptr ? nullptr : sums + begin, begin, end - begin};
  }
};

/// A relation's adjacency over two memories, passed to kernels by value; owns nothing. Column = destination.
template <typename Index>
struct AdjacencyTable {
  int64_t local_end = 0;  ///< columns [0, local_end) lie in the memory of the GPU
  AdjacencyPart<Index> local;
  AdjacencyPart<Index> host;  ///< all columns

  /// The list of a column; degree -1 where indptr is not sound.
  TIERING_SHARED constexpr NeighborList<Index> list(int64_t column) const {
    return column < local_end ? local.list(column) : host.list(column);
  }
};

/// Random keys of a type's nodes: their ids in the source. Those of the hottest lie in the memory of the GPU.
struct NodeKeys {
  const void* local = nullptr;
  int64_t local_end = 0;
  const void* host = nullptr;  ///< all; null: a node's key is its id
  bool wide = false;           ///< int64 instead of int32

  TIERING_SHARED constexpr uint64_t key_of(int64_t node) const {
    if (host == nullptr) return static_cast<uint64_t>(node);
    const void* const keys = node < local_end ? local : host;
    return wide ? static_cast<uint64_t>(static_cast<const int64_t*>(keys)[node])
                : static_cast<uint64_t>(static_cast<const int32_t*>(keys)[node]);
  }
};

}  // namespace tiering
