// The order of the training nodes in one epoch: Fisher-Yates with counter-based random numbers.
#include <numeric>
#include <utility>

#include "tiering/errors.hpp"
#include "tiering/sampling/random.hpp"
#include "tiering/sampling/sampler.hpp"

namespace tiering {

void epoch_order(int64_t n, uint64_t seed, uint64_t epoch, int64_t* out) {
  TIERING_EXPECT(n >= 0, "epoch order: expected 0 or more positions, found " + std::to_string(n));
  std::iota(out, out + n, int64_t{0});
  Stream random(fold_key(StreamUse::epoch_order, {seed, epoch}), 0);
  for (int64_t i = n - 1; i > 0; --i) std::swap(out[i], out[random.below(static_cast<uint64_t>(i) + 1)]);
}

}  // namespace tiering
