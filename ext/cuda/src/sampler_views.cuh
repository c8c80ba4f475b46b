// Types and functions shared by the kernels of the GPU's sampler that draw and those that number.
#pragma once

#include <tiering/cuda/launch.hpp>

namespace tiering::cuda {

/// The first faults of a batch: words that hold the least number seen.
struct Faults {
  unsigned long long seed = ~0ULL;    ///< place of a seed that is no node
  unsigned long long column = ~0ULL;  ///< column whose list is not sound
  unsigned long long edge = ~0ULL;    ///< edge of a hop that leads to no node
};

/// For node_slots.hpp.
struct DeviceAtomics {
  TIERING_SHARED int64_t peek([[maybe_unused]] const int64_t* where) const {
    return TIERING_ON_DEVICE(__ldcg(reinterpret_cast<const long long*>(where)));
  }
  TIERING_SHARED int64_t exchange_if([[maybe_unused]] int64_t* where, [[maybe_unused]] int64_t expected,
                                     [[maybe_unused]] int64_t next) const {
    return TIERING_ON_DEVICE(static_cast<int64_t>(atomicCAS(reinterpret_cast<unsigned long long*>(where),
                                                            static_cast<unsigned long long>(expected),
                                                            static_cast<unsigned long long>(next))));
  }
  /// Most edges lead to nodes that an earlier one has led to: a read tells so, and is cheaper.
  TIERING_SHARED void lower([[maybe_unused]] uint32_t* where, [[maybe_unused]] uint32_t value) const {
    (void)TIERING_ON_DEVICE(__ldcg(where) > value ? atomicMin(where, value) : 0U);
  }
};

/// A hop's frontier: a range of the destination type's list whose ends are known to the device alone.
struct FrontierView {
  const int64_t* nodes;
  const int64_t* begin;  ///< null: 0
  const int64_t* end;

  TIERING_DEVICE int64_t first() const { return begin == nullptr ? 0 : *begin; }
  TIERING_DEVICE int64_t size() const { return *end - first(); }
};

/// How many edges a hop has.
struct Total {
  const int64_t* there;  ///< where only the device knows
  int64_t here = 0;      ///< where the host knows: `there` is null

  TIERING_DEVICE int64_t get() const { return there == nullptr ? here : *there; }
};

/// The frontier node that edge `edge` belongs to: the last whose edges begin at or before it. `counts` are prefix sums.
TIERING_DEVICE int64_t owner_of(int64_t edge, const int64_t* counts, int64_t bound) {
  int64_t low = 0, high = bound;  // counts[low] <= edge < counts[high]
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (counts[middle] <= edge ? low : high) = middle;
  }
  return low;
}

}  // namespace tiering::cuda
