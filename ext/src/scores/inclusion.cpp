// Vertex inclusion probability: with p(v) the probability that v is a seed, F_0 = new_0 = p, D_r = A_r = 0, in hop h =
// 1 .. hops, for every relation r of fanout f and in-degree d = indeg_r(v):
//   w       = min(1, f / d), with replacement 1 - (1 - 1/d)^f; 1 if f = -1, 0 if f or d is 0
//   active  = new_{h-1}(v), plus A_r(v) if found nodes ask in every hop
//   D_r(v) += active * w                v was found, and a given place of its list drawn by now
//   A_r(v)  = active * (1 - w)          v was found, and that place not drawn yet
//   reads_r(v) += F_{h-1}(v), or new_{h-1}(v) if nodes ask only once; where f is not 0
//   F_h(u)  = 1 - (1 - p(u)) * product over r, over edges u -> v, of (1 - D_r(v)); new_h = F_h - F_{h-1}
// Every event counts as independent of the others: exact where each node has at most one out-edge and the seeds are
// independent. Products are sums of log1p(-D) over out-edges (out_edge_sums.hpp), so small probabilities keep their
// digits; a certain draw is -inf. Memory: that of the sums, 24 bytes per node and relation, 16 per node. exp and log
// are those of the C library. Source: Kaler et al. (MLSys'23), whose product counts the hops as independent.
#include <cmath>

#include "out_edge_sums.hpp"

namespace tiering {
namespace {

/// Probability that a given place of a list of `degree` > 0 is drawn.
double draw_probability(int64_t degree, int64_t fanout, bool replacement) {
  if (fanout <= 0) return fanout < 0 ? 1 : 0;
  const auto d = static_cast<double>(degree), f = static_cast<double>(fanout);
  if (replacement) return degree == 1 ? 1 : -std::expm1(f * std::log1p(-1 / d));
  return fanout >= degree ? 1 : f / d;
}

/// Lets a list draw; returns log(1 - D). `waiting` is null where nodes ask only once.
double draw_list(double fresh, int64_t degree, int64_t fanout, bool replacement, double& drawn, double* waiting) {
  const double active = fresh + (waiting == nullptr ? 0 : *waiting);
  if (active > 0) {
    const double w = draw_probability(degree, fanout, replacement);
    drawn = std::min(1.0, drawn + active * w);
    if (waiting != nullptr) *waiting = active * (1 - w);
  }
  return drawn == 0 ? 0 : std::log1p(-drawn);
}

/// F of a node by the sum over its out-edges; `found` is what it was in the hop before.
double find_node(double seed, double sum, double found) {
  const double next = sum == 0 ? seed : seed - (1 - seed) * std::expm1(sum);
  return std::clamp(next, found, 1.0);
}

/// A relation's adjacency lists between hops, per destination.
struct Lists {
  Buffer<double> drawn;    ///< D
  Buffer<double> waiting;  ///< A; empty where nodes ask only once
  bool touched = false;    ///< a hop has drawn from them
};

/// Bytes of the values of nodes and lists.
int64_t own_bytes(const std::vector<ScoreRelation>& relations, const std::vector<int64_t>& num_nodes,
                  const InclusionOptions& options) {
  int64_t values = 0;
  for (const int64_t n : num_nodes) values += 2 * n;
  for (const auto& r : relations) values += (options.only_new ? 2 : 3) * r.csc.num_columns();
  return values * kValueBytes;
}

/// Writes F and new of a range of nodes of a type.
void find_range(const SumRange& range, const NodeValues& values, double* found, double* fresh) {
  std::array<double, 512> seeds;
  for (size_t begin = 0; begin < range.sums.size(); begin += seeds.size()) {
    const size_t count = std::min(seeds.size(), range.sums.size() - begin);
    const int64_t first = range.first + static_cast<int64_t>(begin);
    values.write(first, {seeds.data(), count});
    for (size_t i = 0; i < count; ++i) {
      const int64_t u = first + static_cast<int64_t>(i);
      const double before = found[u];
      found[u] = find_node(seeds[i], range.sums[begin + i], before);
      fresh[u] = found[u] - before;
    }
  }
}

void check_seeds(const std::vector<int64_t>& num_nodes, const std::vector<NodeValues>& seeds) {
  TIERING_EXPECT(seeds.size() == num_nodes.size(), "p0 needs one vector per node type: ", num_nodes.size());
  for (size_t t = 0; t < seeds.size(); ++t) {
    const std::string name = "node type " + std::to_string(t) + ": p0";
    seeds[t].check(num_nodes[t], name + " needs");
    const auto check = [&](double seed, auto... place) {
      TIERING_EXPECT(seed >= 0 && seed <= 1, name, place..., " is ", seed, ", outside 0..1");
    };
    for (size_t v = 0; v < seeds[t].each.size(); ++v) check(seeds[t].each[v], "[", v, "]");
    check(seeds[t].rest);
    check(seeds[t].chosen);
  }
}

}  // namespace

InclusionResult inclusion_probability(const std::vector<ScoreRelation>& relations,
                                      const std::vector<int64_t>& num_nodes, const std::vector<NodeValues>& seeds,
                                      const std::vector<std::vector<int64_t>>& fanouts,
                                      const InclusionOptions& options) {
  check_seeds(num_nodes, seeds);
  for (const auto& hop : fanouts) {
    TIERING_EXPECT(hop.size() == relations.size(), "fanouts: one entry per relation in every hop");
    for (const int64_t fanout : hop) TIERING_EXPECT(fanout >= -1, "fanouts: expected -1 or more, found ", fanout);
  }
  const int threads = options.threads;
  OutEdgeSums sums(relations, num_nodes, threads, options.memory, own_bytes(relations, num_nodes, options));
  InclusionResult result;
  std::vector<Buffer<double>> fresh;
  for (size_t t = 0; t < seeds.size(); ++t)
    for (auto* values : {&result.found, &fresh}) values->push_back(seeds[t].to_vector(num_nodes[t], threads));
  std::vector<Lists> lists;
  for (const auto& r : relations) {
    const auto zeros = [&](bool some) { return NodeValues{}.to_vector(some ? r.csc.num_columns() : 0, threads); };
    lists.push_back({zeros(true), zeros(!options.only_new)});
    result.reads.push_back(zeros(true));
  }
  for (const auto& hop : fanouts) {
    for (size_t r = 0; r < relations.size(); ++r) {
      const int64_t fanout = hop[r];
      Lists& own = lists[r];
      own.touched |= fanout != 0;
      sums.set_active(r, own.touched);
      const auto type = static_cast<size_t>(relations[r].dst_type);
      const double *const news = fresh[type].data(), *const asking =
                                                         options.only_new ? news : result.found[type].data();
      double* const reads = result.reads[r].data();
      for_cuts(threads, fanout == 0 ? 0 : relations[r].csc.num_columns(), [&](int64_t begin, int64_t end) {
        for (int64_t v = begin; v < end; ++v) reads[v] += asking[v];
      });
      sums.contribute(r, [&](int64_t v, int64_t degree) {
        double* const waiting = options.only_new ? nullptr : &own.waiting[v];
        return draw_list(news[v], degree, fanout, options.replacement, own.drawn[v], waiting);
      });
    }
    sums.sweep([&](int64_t, const SumRange& range) {
      const auto type = static_cast<size_t>(range.type);
      find_range(range, seeds[type], result.found[type].data(), fresh[type].data());
    });
  }
  return result;
}

void draw_lists(const DrawnLists& lists, std::span<const double> fresh, int64_t fanout, bool replacement,
                std::span<double> logs) {
  for (size_t v = 0; v < logs.size(); ++v) {
    double* const waiting = lists.waiting.empty() ? nullptr : &lists.waiting[v];
    logs[v] =
        lists.degrees[v] == 0 ? 0 : draw_list(fresh[v], lists.degrees[v], fanout, replacement, lists.drawn[v], waiting);
  }
}

void find_nodes(std::span<const double> seeds, std::span<const double> sums, std::span<double> found) {
  for (size_t u = 0; u < found.size(); ++u) found[u] = find_node(seeds[u], sums[u], found[u]);
}

}  // namespace tiering
