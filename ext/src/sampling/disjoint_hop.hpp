// Hops of disjoint batches, and the edges of induced ones. Compiled apart from the sampler's other rules, which stay as
// fast as without them.
#pragma once

#include "hop_task.hpp"
#include "tiering/sampling/draw.hpp"

namespace tiering {

/// One hop over one relation, where each node is a key with its instance.
template <typename Draw>
void run_disjoint_hop(const HopTask& task, Draw& draw, GrowingArray<int64_t>* scratch);

/// Writes all edges between known nodes of one instance that are visible to it: by destination, in the order of its
/// list. Reads the lists of all destinations. A batch that is not disjoint is one instance.
void write_induced_edges(const HopTask& task);

}  // namespace tiering
