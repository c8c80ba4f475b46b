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
  Buffer<double> reads;
  bool touched = false;  ///< a hop has drawn from them
};

/// Memory of a spread in bytes, excluding its sums.
int64_t own_bytes(const std::vector<ScoreRelation>& relations, const std::vector<int64_t>& num_nodes,
                  const InclusionOptions& options) {
  int64_t values = 0;
  for (const int64_t n : num_nodes) values += 2 * n;
  for (const auto& r : relations) values += (options.only_new ? 2 : 3) * r.csc.num_columns();
  return values * static_cast<int64_t>(sizeof(double));
}

class Spread {
 public:
  Spread(const std::vector<ScoreRelation>& relations, const std::vector<int64_t>& num_nodes,
         const std::vector<NodeValues>& seeds, const InclusionOptions& options)
      : relations_(relations),
        seeds_(seeds),
        options_(options),
        sums_(relations, num_nodes, options.threads, options.memory, own_bytes(relations, num_nodes, options)) {
    for (size_t t = 0; t < seeds.size(); ++t) {
      found_.push_back(seeds[t].to_vector(num_nodes[t], options.threads));
      fresh_.push_back(seeds[t].to_vector(num_nodes[t], options.threads));
    }
    auto zeros = [&](int64_t n) { return NodeValues{}.to_vector(n, options.threads); };
    for (const auto& r : relations) {
      const int64_t n = r.csc.num_columns();
      lists_.push_back({zeros(n), zeros(options.only_new ? 0 : n), zeros(n)});
    }
  }

  void hop(const std::vector<int64_t>& fanouts) {
    for (size_t r = 0; r < relations_.size(); ++r) {
      lists_[r].touched |= fanouts[r] != 0;
      sums_.set_active(r, lists_[r].touched);
      if (fanouts[r] != 0) read(r);
      draw(r, fanouts[r]);
    }
    sums_.sweep([&](int64_t, const SumRange& range) { find(range); });
  }

  InclusionResult result() {
    InclusionResult result{std::move(found_), {}};
    for (auto& lists : lists_) result.reads.push_back(std::move(lists.reads));
    return result;
  }

 private:
  /// Counts the reads of a relation's lists in a hop.
  void read(size_t r) {
    const auto type = static_cast<size_t>(relations_[r].dst_type);
    const double* asking = (options_.only_new ? fresh_ : found_)[type].data();
    for_cuts(options_.threads, relations_[r].csc.num_columns(), [&](int64_t begin, int64_t end) {
      for (int64_t v = begin; v < end; ++v) lists_[r].reads[v] += asking[v];
    });
  }

  /// Lets the destinations of a relation draw, and contributes log(1 - D).
  void draw(size_t r, int64_t fanout) {
    const double* fresh = fresh_[static_cast<size_t>(relations_[r].dst_type)].data();
    Lists& lists = lists_[r];
    sums_.contribute(r, [&](int64_t v, int64_t degree) {
      double* const waiting = options_.only_new ? nullptr : &lists.waiting[v];
      return draw_list(fresh[v], degree, fanout, options_.replacement, lists.drawn[v], waiting);
    });
  }

  /// F and new of a range of nodes.
  void find(const SumRange& range) {
    const auto type = static_cast<size_t>(range.type);
    std::array<double, 512> seeds;
    for (size_t begin = 0; begin < range.sums.size(); begin += seeds.size()) {
      const size_t count = std::min(seeds.size(), range.sums.size() - begin);
      const int64_t first = range.first + static_cast<int64_t>(begin);
      seeds_[type].write(first, {seeds.data(), count});
      for (size_t i = 0; i < count; ++i) {
        const int64_t u = first + static_cast<int64_t>(i);
        const double before = found_[type][u];
        found_[type][u] = find_node(seeds[i], range.sums[begin + i], before);
        fresh_[type][u] = found_[type][u] - before;
      }
    }
  }

  const std::vector<ScoreRelation>& relations_;
  const std::vector<NodeValues>& seeds_;
  const InclusionOptions& options_;
  OutEdgeSums sums_;
  std::vector<Buffer<double>> found_, fresh_;
  std::vector<Lists> lists_;
};

void check_seeds(const std::vector<int64_t>& num_nodes, const std::vector<NodeValues>& seeds) {
  TIERING_EXPECT(seeds.size() == num_nodes.size(), "p0 needs one vector per node type: ", num_nodes.size());
  for (size_t t = 0; t < seeds.size(); ++t) {
    const std::string name = "node type " + std::to_string(t) + ": p0";
    seeds[t].check(num_nodes[t], name + " needs");
    auto check = [&](double seed, const std::string& which) {
      TIERING_EXPECT(seed >= 0 && seed <= 1, name, which, " is ", seed, ", outside 0..1");
    };
    for (size_t v = 0; v < seeds[t].each.size(); ++v)
      if (const double seed = seeds[t].each[v]; !(seed >= 0 && seed <= 1))
        check(seed, std::string("[").append(std::to_string(v)).append("]"));
    check(seeds[t].rest, "");
    check(seeds[t].chosen, "");
  }
}

void check_fanouts(const std::vector<std::vector<int64_t>>& fanouts, size_t num_relations) {
  for (const auto& hop : fanouts) {
    TIERING_EXPECT(hop.size() == num_relations, "fanouts: one entry per relation in every hop");
    for (const int64_t fanout : hop) TIERING_EXPECT(fanout >= -1, "fanouts: expected -1 or more, found ", fanout);
  }
}

}  // namespace

InclusionResult inclusion_probability(const std::vector<ScoreRelation>& relations,
                                      const std::vector<int64_t>& num_nodes, const std::vector<NodeValues>& seeds,
                                      const std::vector<std::vector<int64_t>>& fanouts,
                                      const InclusionOptions& options) {
  check_seeds(num_nodes, seeds);
  check_fanouts(fanouts, relations.size());
  Spread spread(relations, num_nodes, seeds, options);
  for (const auto& hop : fanouts) spread.hop(hop);
  return spread.result();
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
