// Parameters of the random walks.
#pragma once

#include <cstdint>
#include <vector>

namespace tiering {

/// Random walks with restart (PinSAGE): every frontier node starts `num_walks` walks of at most `walk_length`
/// rounds over the metapath. After each round but the last a walk ends with probability restart / 2^53, and at
/// once where a list is empty.
struct WalkRule {
  static constexpr int64_t kMostVisits = int64_t{1} << 24;  // exact in the float32 of the weights
  static constexpr uint64_t kCertain = uint64_t{1} << 53;

  int64_t num_walks = 0;
  int64_t walk_length = 0;
  uint64_t restart = 0;                     // in 2^-53
  std::vector<std::vector<int>> metapaths;  // relations, in the order walked
};

}  // namespace tiering
