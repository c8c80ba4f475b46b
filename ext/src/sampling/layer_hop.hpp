// One hop of layer-wise importance sampling (LADIES; Zou et al., NeurIPS 2019). Candidates are the in-neighbors u of
// the frontier, of importance pi(u) = sum of 1 / indegree(v)^2 over the edges u -> v into it, in frontier order. `fanout`
// of them are drawn without replacement, in proportion to pi: each has a clock that rings after an exponential time of
// rate pi, by a random number of its key alone, and the first to ring are taken (Efraimidis & Spirakis, 2006). All edges
// from drawn or known nodes weigh 1 / pi(u), scaled to sum 1 per destination. Doubles, each operation rounded by itself:
// same bits on every machine.
#pragma once

#include <bit>

#include "hop_task.hpp"

namespace tiering {

/// By arithmetic that every machine rounds alike, without the system's log(): compile with -ffp-contract=off. -log((k +
/// 1/2) / 2^52) for k = the upper 52 bits of `bits`; relative error below 1e-15, between 1.1e-16 and 36.8. With x = m *
/// 2^e, m in [sqrt(1/2), sqrt(2)): log(x) = e * log(2) + 2 atanh((m - 1) / (m + 1)), up to the 23rd power.
constexpr double exponential(uint64_t bits) {
  const double x = (static_cast<double>(bits >> 12) + 0.5) * 0x1p-52;  // exact: 53 bits
  constexpr uint64_t kSqrtHalf = 0x3fe6a09e667f3bcdULL;
  const uint64_t word = std::bit_cast<uint64_t>(x) - kSqrtHalf;
  const auto exponent = static_cast<int64_t>(word) >> 52;  // arithmetic: floor
  const double m = std::bit_cast<double>((word & 0xfffffffffffffULL) + kSqrtHalf);
  const double s = (m - 1.0) / (m + 1.0), z = s * s;
  double sum = 1.0 / 23.0;
  for (int power = 21; power >= 1; power -= 2) sum = 1.0 / power + z * sum;
  return -(static_cast<double>(exponent) * 0.69314718055994530942 + 2.0 * s * sum);
}

/// The fanout is the nodes to draw for the layer; those of the source type that are known are kept without being drawn.
/// Memory: 28 bytes per candidate, 16 more while drawing, and 4 per edge into the frontier where edges are
/// wanted. Reused from hop to hop.
class LayerHop {
 public:
  void run(const HopTask& task) {
    task_ = &task;
    candidates_.start(task.num_src);
    importance_.set_size(0);
    edge_source_.set_size(0);
    task.relation->indices.visit([&](const auto& indices) { collect(indices.data()); });
    draw();
    keep_known();
    number_kept();
    if (task.edges != nullptr) write_edges();
  }

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

  /// Finds the candidates. Edges go through two chunks by turns: while one waits for its slots of the hash table,
  /// the other is added.
  template <typename Index>
  void collect(const Index* indices) {
    const RelationView& relation = *task_->relation;
    const auto& nodes = *task_->destinations;
    chunks_[0].size = chunks_[1].size = 0;
    int filling = 0;
    for (int64_t i = task_->frontier_begin; i < task_->frontier_end; ++i) {
      if (i + kAhead < task_->frontier_end) {
        __builtin_prefetch(relation.indptr + nodes[i + kAhead]);
        __builtin_prefetch(relation.indptr + nodes[i + kAhead] + 1);
      }
      if (i + kAhead / 2 < task_->frontier_end) {
        const int64_t begin = relation.indptr[nodes[i + kAhead / 2]];
        __builtin_prefetch(indices + std::clamp<int64_t>(begin, 0, relation.indices.size));
      }
      const auto [begin, degree] = checked_list(relation, nodes[i]);
      const double share = 1.0 / (static_cast<double>(degree) * static_cast<double>(degree));
      for (int64_t done = 0; done < degree;) {
        if (chunks_[filling].size == kChunk) add(chunks_[filling ^= 1]);
        Chunk& chunk = chunks_[filling];
        const int64_t size = std::min(degree - done, kChunk - chunk.size);
        read_ids(indices, begin + done, size, share, chunk);
        done += size;
      }
    }
    add(chunks_[filling ^ 1]);
    add(chunks_[filling]);
  }

  template <typename Index>
  void read_ids(const Index* indices, int64_t first, int64_t size, double share, Chunk& chunk) {
    for (int64_t j = 0; j < size; ++j) {
      const auto id = static_cast<int64_t>(indices[first + j]);
      if (static_cast<uint64_t>(id) >= static_cast<uint64_t>(task_->num_src)) [[unlikely]]
        throw_bad_index(first + j, id, task_->num_src);
      candidates_.prefetch(id);
      chunk.ids[chunk.size + j] = id;
      chunk.shares[chunk.size + j] = share;
    }
    chunk.size += size;
  }

  void add(Chunk& chunk) {
    check_room(candidates_.size(), chunk.size);
    candidates_.make_room(chunk.size);
    importance_.make_room(chunk.size + 1);
    int64_t count = importance_.size();
    const int64_t at = edge_source_.size();
    if (task_->edges != nullptr) edge_source_.make_room(chunk.size);
    for (int64_t j = 0; j < chunk.size; ++j) {
      importance_[count] = 0.0;  // in case the candidate is new
      const int32_t candidate = candidates_.insert(chunk.ids[j]);
      importance_[candidate] += chunk.shares[j];
      count = candidates_.size();
      if (task_->edges != nullptr) edge_source_[at + j] = candidate;
    }
    importance_.set_size(count);
    if (task_->edges != nullptr) edge_source_.set_size(at + chunk.size);
    chunk.size = 0;
  }

  void draw() {
    const int64_t count = candidates_.size(), wanted = task_->fanout;
    const bool all = wanted < 0 || wanted >= count;
    state_.resize(count);
    std::fill_n(state_.data(), count, all ? kKept : kLeftOut);
    if (all) return;
    clocks_.resize(count);
    for (int64_t c = 0; c < count; ++c) {
      if (c + kAhead < count) task_->source_keys.prefetch(candidates_.nodes()[c + kAhead]);
      Stream random(task_->stream, task_->source_keys.key_of(candidates_.nodes()[c]));
      clocks_[c] = {exponential(random.next()) / importance_[c], c};
    }
    const auto earlier = [](const Clock& a, const Clock& b) {
      return a.rings != b.rings ? a.rings < b.rings : a.candidate < b.candidate;
    };
    std::nth_element(clocks_.data(), clocks_.data() + wanted, clocks_.data() + count, earlier);
    for (int64_t i = 0; i < wanted; ++i) state_[clocks_[i].candidate] = kKept;
  }

  void keep_known() {
    const auto& nodes = task_->sources->nodes();
    for (int64_t i = 0; i < task_->known; ++i) {
      if (i + kAhead < task_->known) candidates_.prefetch(nodes[i + kAhead]);
      const int32_t candidate = candidates_.find(nodes[i]);
      if (candidate >= 0) state_[candidate] = kKept;
    }
  }

  /// Looks the kept candidates up among the known nodes, in order of discovery.
  void number_kept() {
    const auto& nodes = candidates_.nodes();
    const int64_t count = candidates_.size();
    int64_t kept = 0;
    for (int64_t c = 0; c < count; ++c) kept += state_[c] == kKept;
    check_room(task_->sources->size(), kept);
    task_->sources->make_room(kept);
    for (int64_t c = 0; c < count; ++c) {
      if (c + kAhead < count && state_[c + kAhead] == kKept) task_->sources->prefetch(nodes[c + kAhead]);
      if (state_[c] == kKept) state_[c] = task_->sources->insert(nodes[c]);
    }
  }

  void write_edges() {
    SampledEdges& edges = *task_->edges;
    int64_t total = 0;
    for (const int32_t candidate : edge_source_) total += state_[candidate] != kLeftOut;
    edges.src.resize(total);
    edges.dst.resize(total);
    edges.weights.resize(total);
    if (task_->want_positions) edges.positions.resize(total);
    const auto& nodes = *task_->destinations;
    int64_t at = 0;
    const int32_t* candidate = edge_source_.data();
    for (int64_t i = task_->frontier_begin; i < task_->frontier_end; ++i) {
      const int64_t begin = task_->relation->indptr[nodes[i]], end = task_->relation->indptr[nodes[i] + 1];
      const int64_t first = at;
      double sum = 0.0;
      row_.resize(end - begin);
      for (int64_t place = begin; place < end; ++place, ++candidate) {
        if (state_[*candidate] == kLeftOut) continue;
        edges.src[at] = state_[*candidate];
        edges.dst[at] = static_cast<int32_t>(i);
        if (task_->want_positions) edges.positions[at] = place;
        const double weight = 1.0 / importance_[*candidate];
        row_[at++ - first] = weight;
        sum += weight;
      }
      for (int64_t k = first; k < at; ++k) edges.weights[k] = static_cast<float>(row_[k - first] / sum);
    }
  }

  const HopTask* task_ = nullptr;
  NodeTable candidates_;               // in-neighbors of the frontier, in order of discovery
  GrowingArray<double> importance_;    // of each candidate
  GrowingArray<int32_t> state_;        // of each candidate: kLeftOut, kKept, or its place in the sources
  GrowingArray<Clock> clocks_;         //
  GrowingArray<int32_t> edge_source_;  // candidate of every edge into the frontier
  GrowingArray<double> row_;           // unscaled weights of one destination
  Chunk chunks_[2];
};

}  // namespace tiering
