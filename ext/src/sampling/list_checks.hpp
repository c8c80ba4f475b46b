// What the samplers say about adjacency that is not sound.
#pragma once

#include <cstdint>
#include <string>

#include "tiering/errors.hpp"
#include "tiering/sampling/sampler.hpp"

namespace tiering {

/// Where a list lies in the relation's indices.
struct ListRange {
  int64_t begin, degree;
};

[[noreturn, gnu::cold, gnu::noinline]] inline void throw_bad_list(int64_t node, int64_t begin, int64_t end,
                                                                  int64_t num_indices) {
  throw InputError("column " + std::to_string(node) + ": indptr says entries " + std::to_string(begin) +
                       " to " + std::to_string(end) + ", but there are " + std::to_string(num_indices) +
                       " indices",
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
  throw InputError("indices[" + std::to_string(place) + "]: source id " + std::to_string(id) +
                       " is outside 0.." + std::to_string(num_src - 1),
                   InputError::Subject::adjacency);
}

/// Throws unless a table of `size` nodes may take `extra` more.
inline void check_room(int64_t size, int64_t extra) {
  TIERING_EXPECT(size + extra < INT32_MAX,
                 "a batch may reach at most 2^31 - 1 nodes of one type: use fewer seeds or smaller fanouts");
}

}  // namespace tiering
