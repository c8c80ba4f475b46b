// Random small graphs, the damage that is done to them, and a slow judge of whether they are sound.
#pragma once

#include <cmath>
#include <random>
#include <tiering/graph.hpp>
#include <tiering/sampling/sampler.hpp>
#include <tiering/scores.hpp>

namespace tiering::test {

class Luck {
 public:
  explicit Luck(uint64_t seed) : engine_(seed) {}
  int64_t below(int64_t n) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(n)); }
  bool once_in(int64_t n) { return below(n) == 0; }
  template <typename T>
  const T& of(const std::vector<T>& values) {
    return values[static_cast<size_t>(below(static_cast<int64_t>(values.size())))];
  }

 private:
  std::mt19937_64 engine_;
};

template <typename T>
int64_t size_of(const std::vector<T>& values) {
  return static_cast<int64_t>(values.size());
}

/// One relation as a file might hold it. The vectors are copied before they are read, so that they have no spare room
/// in which a read too far would stay unseen.
struct DamagedRelation {
  int src = 0, dst = 0;
  bool is_wide = false;
  std::vector<int64_t> indptr, wide;
  std::vector<int32_t> narrow;
  std::vector<float> weights;

  int64_t num_edges() const { return is_wide ? size_of(wide) : size_of(narrow); }
  int64_t index(int64_t e) const { return is_wide ? wide[static_cast<size_t>(e)] : narrow[static_cast<size_t>(e)]; }
  IdSpan span() const {
    if (is_wide) return {wide.data(), size_of(wide), true};
    return {narrow.data(), size_of(narrow), false};
  }
  CscView csc() const { return {indptr, span()}; }
  RelationView view() const { return {src, dst, indptr.data(), span(), {weights.data(), size_of(weights), false}}; }
  bool offsets_sound() const {
    return indptr.front() == 0 && indptr.back() == num_edges() && std::is_sorted(indptr.begin(), indptr.end());
  }
  bool indices_sound(int64_t num_src) const {
    for (int64_t e = 0; e < num_edges(); ++e)
      if (index(e) < 0 || index(e) >= num_src) return false;
    return true;
  }
  bool weights_sound() const {
    return size_of(weights) == num_edges() &&
           std::all_of(weights.begin(), weights.end(), [](float w) { return w >= 0 && std::isfinite(w); }) &&
           (weights.empty() || *std::max_element(weights.begin(), weights.end()) > 0);
  }
};

struct DamagedGraph {
  std::vector<int64_t> num_nodes;
  std::vector<DamagedRelation> relations;
  std::vector<std::vector<int64_t>> keys;        // per type: random keys of the nodes
  std::vector<std::vector<int64_t>> old_to_new;  // per type
  std::vector<double> scores;

  int64_t nodes_of(int type) const { return num_nodes[static_cast<size_t>(type)]; }
  bool offsets_sound() const {
    return std::all_of(relations.begin(), relations.end(), [](const auto& r) { return r.offsets_sound(); });
  }
  bool sound() const {
    return offsets_sound() && std::all_of(relations.begin(), relations.end(),
                                          [&](const auto& r) { return r.indices_sound(nodes_of(r.src)); });
  }
  bool weights_sound() const {
    return std::all_of(relations.begin(), relations.end(), [](const auto& r) { return r.weights_sound(); });
  }
  std::vector<ScoreRelation> to_score() const {
    std::vector<ScoreRelation> views;
    for (const auto& r : relations) views.push_back({r.src, r.dst, r.csc()});
    return views;
  }
};

inline std::vector<int64_t> random_permutation(int64_t size, Luck& luck) {
  std::vector<int64_t> ids(static_cast<size_t>(size));
  for (int64_t i = 0; i < size; ++i) {
    const int64_t at = luck.below(i + 1);
    ids[static_cast<size_t>(i)] = ids[static_cast<size_t>(at)];
    ids[static_cast<size_t>(at)] = i;
  }
  return ids;
}

inline DamagedRelation random_relation(const std::vector<int64_t>& num_nodes, Luck& luck) {
  DamagedRelation r;
  const auto types = size_of(num_nodes);
  r.src = static_cast<int>(luck.below(types));
  r.dst = static_cast<int>(luck.below(types));
  r.is_wide = luck.once_in(2);
  const int64_t num_src = num_nodes[static_cast<size_t>(r.src)], num_dst = num_nodes[static_cast<size_t>(r.dst)];
  std::vector<int64_t> degrees(static_cast<size_t>(num_dst), 0);
  if (num_src > 0 && num_dst > 0) {
    const int64_t edges = luck.below(luck.once_in(8) ? 3000 : 200);
    for (int64_t e = 0; e < edges; ++e)
      ++degrees[static_cast<size_t>(luck.once_in(4) ? num_dst / 2 : luck.below(num_dst))];
    for (int64_t e = 0; e < edges; ++e) {
      const int64_t id = luck.below(num_src);
      if (r.is_wide)
        r.wide.push_back(id);
      else
        r.narrow.push_back(static_cast<int32_t>(id));
      r.weights.push_back(e > 0 && luck.once_in(4) ? 0.0F : static_cast<float>(1 + luck.below(1000)) / 64.0F);
    }
  }
  r.indptr.push_back(0);
  for (const int64_t degree : degrees) r.indptr.push_back(r.indptr.back() + degree);
  return r;
}

inline DamagedGraph random_graph(Luck& luck) {
  DamagedGraph graph;
  const int64_t types = 1 + luck.below(3), relations = 1 + luck.below(3);
  for (int64_t t = 0; t < types; ++t)
    graph.num_nodes.push_back(luck.once_in(12) ? 0 : 1 + luck.below(luck.once_in(8) ? 5000 : 60));
  for (int64_t r = 0; r < relations; ++r) graph.relations.push_back(random_relation(graph.num_nodes, luck));
  for (const int64_t n : graph.num_nodes) {
    graph.keys.push_back(random_permutation(n, luck));
    graph.old_to_new.push_back(random_permutation(n, luck));
  }
  for (int64_t v = luck.below(300); v > 0; --v) graph.scores.push_back(static_cast<double>(luck.below(50)));
  return graph;
}

/// A number that a file should not hold there; or, now and then, one that it may.
inline int64_t hostile(int64_t size, Luck& luck) {
  using Limits = std::numeric_limits<int64_t>;
  const int64_t big = int64_t{1} << 62, word = int64_t{1} << 31;
  return luck.of<int64_t>({0,
                           1,
                           -1,
                           -2,
                           Limits::min(),
                           Limits::min() + 1,
                           Limits::max(),
                           Limits::max() - 1,
                           word,
                           word - 1,
                           -word,
                           big,
                           -big,
                           big + 1,
                           size,
                           size + 1,
                           size - 1,
                           size + 2,
                           2 * size,
                           -size,
                           luck.below(size + 1)});
}

/// Damages one array: an entry or a stretch of it, two entries swapped, or its end cut off.
template <typename T>
void damage(std::vector<T>& values, int64_t size, bool may_cut, Luck& luck) {
  if (values.empty()) return;
  const auto count = size_of(values), at = luck.below(count);
  const auto place = [&](int64_t i) { return values.begin() + i; };
  switch (luck.below(may_cut ? 6 : 5)) {
    case 0:
      std::swap(*place(at), *place(luck.below(count)));
      break;
    case 1:
      std::fill(place(at), place(std::min(count, at + 1 + luck.below(40))), static_cast<T>(hostile(size, luck)));
      break;
    case 5:
      values.resize(static_cast<size_t>(at));
      break;
    default:
      *place(luck.once_in(3) ? count - 1 : at) = static_cast<T>(hostile(size, luck));
  }
}

inline void damage_weights(std::vector<float>& weights, Luck& luck) {
  if (weights.empty()) return;
  const auto infinite = std::numeric_limits<float>::infinity();
  weights[static_cast<size_t>(luck.below(size_of(weights)))] =
      luck.of<float>({infinite, -infinite, std::nanf(""), -1.0F, 3e38F, 1e-45F, 0.0F});
}

inline void damage(DamagedGraph& graph, Luck& luck) {
  for (int64_t times = 1 + luck.below(3); times > 0; --times) {
    DamagedRelation& r = graph.relations[static_cast<size_t>(luck.below(size_of(graph.relations)))];
    const auto type = static_cast<size_t>(luck.below(size_of(graph.num_nodes)));
    switch (luck.below(11)) {
      case 0:
        damage(graph.keys[type], graph.num_nodes[type], false, luck);
        break;
      case 1:
        damage(graph.old_to_new[type], graph.num_nodes[type], false, luck);
        break;
      case 2:
        damage_weights(r.weights, luck);
        break;
      case 3:
        if (!graph.scores.empty())
          graph.scores[static_cast<size_t>(luck.below(size_of(graph.scores)))] =
              luck.of<double>({std::nan(""), std::numeric_limits<double>::infinity(), -0.0, 1e300, -1e300});
        break;
      case 4:
      case 5:
        if (r.is_wide)
          damage(r.wide, graph.nodes_of(r.src), true, luck);
        else
          damage(r.narrow, graph.nodes_of(r.src), true, luck);
        break;
      case 6:
        r.src = static_cast<int>(type);  // which may have fewer nodes, or none
        break;
      default:
        damage(r.indptr, r.num_edges(), false, luck);
    }
  }
}

}  // namespace tiering::test
