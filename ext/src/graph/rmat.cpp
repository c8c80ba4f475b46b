// A recursive-matrix (R-MAT) power-law graph, for benchmarks and tests.
//
// Returns:    num_edges edges over 2^scale nodes, quadrant odds a = .57, b = .19, c = .19, d = .05.
//             Duplicates and self loops are kept. As drawn, low ids have high degrees; `scramble`
//             relabels by a bijection, as Graph500 asks, so that ids tell nothing about degrees.
// Randomness: counter-based: edge i depends on (seed, i) alone, hence the same bytes for any number of
//             threads.
// Source:     Chakrabarti, Zhan, Faloutsos, "R-MAT" (SDM'04); Graph500 specification; splitmix64 by S.
//             Vigna.
#include <tiering/errors.hpp>
#include <tiering/graph.hpp>
#include <tiering/parallel.hpp>
#include <tiering/sampling/random.hpp>

namespace tiering {
namespace {

constexpr int kMaxScale = 30;
constexpr int kLevelsPerDraw = 4;  // 16 random bits decide one level
constexpr uint64_t kA = 37355;     // 65536 * .57
constexpr uint64_t kAb = 49807;    // 65536 * (.57 + .19)
constexpr uint64_t kAbc = 62259;   // 65536 * (.57 + .19 + .19)

uint64_t mix(uint64_t x) { return mix64(x + kGolden); }

/// A bijection on [0, 2^scale): odd multipliers and xor with higher bits are both invertible modulo 2^scale.
uint64_t scrambled(uint64_t id, int scale, uint64_t key) {
  const uint64_t mask = (uint64_t{1} << scale) - 1;
  for (int round = 0; round < 3; ++round) {
    id = (id * kGolden + key) & mask;
    id ^= id >> (scale / 2 + 1);
  }
  return id;
}

struct Edge {
  uint64_t src, dst;
};

Edge draw_edge(int scale, uint64_t key, int64_t i) {
  Edge edge{0, 0};
  uint64_t bits = 0;
  for (int level = 0; level < scale; ++level) {
    if (level % kLevelsPerDraw == 0)
      bits = mix(key + static_cast<uint64_t>(i) * kMaxScale + static_cast<uint64_t>(level));
    const uint64_t draw = bits & 0xffff;
    bits >>= 16;
    edge.src = edge.src << 1 | static_cast<uint64_t>(draw >= kAb);
    edge.dst = edge.dst << 1 | static_cast<uint64_t>((draw >= kA) & (draw < kAb)) | static_cast<uint64_t>(draw >= kAbc);
  }
  return edge;
}

}  // namespace

void rmat_edges(int scale, uint64_t seed, bool scramble, std::span<int32_t> src, std::span<int32_t> dst, int threads) {
  TIERING_EXPECT(scale >= 1 && scale <= kMaxScale, "scale is " + std::to_string(scale) + ", expected 1..30");
  const uint64_t key = mix(seed);
  run_team(threads, [&](int t) {
    const auto [begin, end] = even_cut(static_cast<int64_t>(src.size()), threads, t);
    for (int64_t i = begin; i < end; ++i) {
      Edge edge = draw_edge(scale, key, i);
      if (scramble) edge = {scrambled(edge.src, scale, key), scrambled(edge.dst, scale, key)};
      src[static_cast<size_t>(i)] = static_cast<int32_t>(edge.src);
      dst[static_cast<size_t>(i)] = static_cast<int32_t>(edge.dst);
    }
  });
}

}  // namespace tiering
