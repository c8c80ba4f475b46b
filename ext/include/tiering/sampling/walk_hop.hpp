// One hop of random walks with restart (PinSAGE): the most visited nodes become the neighbours.
#pragma once

#include <cstdint>
#include <vector>

#include "tiering/sampling/growing_array.hpp"
#include "tiering/sampling/hop_task.hpp"
#include "tiering/sampling/random.hpp"
#include "tiering/sampling/visit_counter.hpp"

namespace tiering {

/// Checks the walks against the relations: every metapath is connected, and comes back to the type it starts
/// from where it is walked more than once.
void check_walks(const WalkRule& rule, const std::vector<RelationView>& relations);

/// `WalkRule::restart` of a probability. Throws where it is none.
uint64_t restart_of(double probability);

/// The walks of some frontier nodes advance together, step by step: every step is a pass that reads what the
/// pass before it has prefetched, so that some hundred cache misses are on their way at once. The walks stay
/// in order, and each has random numbers of its own, so the result is that of one walk at a time.
/// Memory: some 40 bytes per walk of a block, nothing per graph node. Reused from hop to hop.
class WalkHop {
 public:
  void run(const HopTask& task);

 private:
  static constexpr int64_t kBlockWalks = 512;

  void start_block(int64_t first, int64_t last);
  void prefetch_starts(int64_t first, int64_t last) const;
  void walk();
  void choose(size_t relation);
  template <typename Index>
  void follow(const RelationView& relation, const Index* indices);
  void arrive(bool last_round);
  void prefetch_lists(size_t relation) const;
  void count_read(size_t relation, int64_t node, int64_t times) const;
  void select();
  void emit();

  const HopTask* task_ = nullptr;
  int64_t most_visits_ = 0;  // per frontier node

  // The block's frontier nodes: places [first_, first_ + nodes_) of the destination list.
  int64_t first_ = 0, nodes_ = 0;
  GrowingArray<int64_t> visits_;      // most_visits_ per node
  GrowingArray<int64_t> num_visits_;  // per node

  // Walks under way.
  int64_t live_ = 0;
  GrowingArray<int64_t> at_;  // node; between choose() and follow() the place in indices
  GrowingArray<int32_t> owner_;
  GrowingArray<Stream> random_;

  // Chosen neighbours of a block that wait for being looked up.
  struct Chosen {
    GrowingArray<int64_t> ids, counts;
    GrowingArray<int64_t> taken;  // per node
    int64_t first = 0;
  } chosen_;
  VisitCounter counter_;
};

}  // namespace tiering
