// What a sampled edge costs, step by step: where does the time of neighbour sampling go?
//
//   sampling_cost INDPTR INDICES BATCHES BATCH_SIZE FANOUT HOPS
//
// The files are raw int64 and int32. Batches are sampled first and every step's input is kept; then each step runs
// alone over the kept input, plainly and with its reads announced `kAhead` elements before (prefetch), on one thread:
//
//   lists   read where each frontier node's list begins and ends
//   draw    choose places (random numbers and Floyd's algorithm; no memory to speak of)
//   ids     read the neighbours' ids at those places
//   unique  number the ids: the sampler's hash table, or an array with an entry for every node of the graph
//   write   the edges
//
// Prints one JSON object: nanoseconds per sampled edge, best of several runs.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <tiering/sampling/node_table.hpp>
#include <tiering/sampling/random.hpp>
#include <vector>

namespace {

constexpr int64_t kAhead = 32;
constexpr int kRuns = 5;

template <typename T>
std::vector<T> read_file(const char* path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) std::exit((std::fprintf(stderr, "cannot read %s\n", path), 1));
  std::vector<T> values(static_cast<size_t>(file.tellg()) / sizeof(T));
  file.seekg(0).read(reinterpret_cast<char*>(values.data()),
                     static_cast<std::streamsize>(values.size() * sizeof(T)));
  return values;
}

struct Hop {                   // one hop of one batch, and what its steps hand on
  std::vector<int64_t> nodes;  // the frontier: all nodes found so far
  std::vector<int64_t> begin, degree;
  std::vector<int64_t> places;
  std::vector<int32_t> ids;
};

struct Graph {
  std::vector<int64_t> indptr;
  std::vector<int32_t> indices;
  int64_t num_nodes() const { return static_cast<int64_t>(indptr.size()) - 1; }
};

template <bool prefetch>
void lists(const Graph& graph, Hop& hop) {
  const auto size = static_cast<int64_t>(hop.nodes.size());
  for (int64_t i = 0; i < size; ++i) {
    if (prefetch && i + kAhead < size) __builtin_prefetch(&graph.indptr[hop.nodes[i + kAhead]]);
    hop.begin[i] = graph.indptr[hop.nodes[i]];
    hop.degree[i] = graph.indptr[hop.nodes[i] + 1] - hop.begin[i];
  }
}

void draw(Hop& hop, int64_t fanout) {
  int64_t* out = hop.places.data();
  for (size_t i = 0; i < hop.nodes.size(); ++i) {
    const int64_t degree = hop.degree[i], taken = std::min(degree, fanout);
    tiering::Stream random(1, static_cast<uint64_t>(hop.nodes[i]));
    for (int64_t k = 0; k < taken; ++k) {
      const int64_t last = degree - taken + k;
      const int64_t place =
          hop.begin[i] +
          (taken == degree ? k : static_cast<int64_t>(random.below(static_cast<uint64_t>(last) + 1)));
      bool seen = false;
      for (int64_t j = 0; j < k; ++j) seen |= out[j] == place;
      out[k] = seen ? hop.begin[i] + last : place;
    }
    out += taken;
  }
}

template <bool prefetch>
void ids(const Graph& graph, Hop& hop) {
  const auto size = static_cast<int64_t>(hop.places.size());
  for (int64_t k = 0; k < size; ++k) {
    if (prefetch && k + kAhead < size) __builtin_prefetch(&graph.indices[hop.places[k + kAhead]]);
    hop.ids[k] = graph.indices[hop.places[k]];
  }
}

/// The sampler's own table; what it costs to empty it is part of the step.
struct HashTable {
  explicit HashTable(const Graph& graph) : num_nodes(graph.num_nodes()) {}
  void start() { table.start(num_nodes); }
  template <bool prefetch, typename Ids>
  void add(const Ids& ids, int32_t* locals) {
    const auto size = static_cast<int64_t>(ids.size());
    table.make_room(size);
    for (int64_t k = 0; k < size; ++k) {
      if (prefetch && k + kAhead < size) table.prefetch(ids[k + kAhead]);
      locals[k] = table.insert(ids[k]);
    }
  }
  int64_t num_nodes;
  tiering::NodeTable table;
};

/// An entry per node of the graph, emptied through the list of what was found.
struct WholeArray {
  explicit WholeArray(const Graph& graph) : local(static_cast<size_t>(graph.num_nodes()), -1) {}
  void start() {
    for (const int64_t node : found) local[node] = -1;
    found.clear();
  }
  template <bool prefetch, typename Ids>
  void add(const Ids& ids, int32_t* locals) {
    const auto size = static_cast<int64_t>(ids.size());
    for (int64_t k = 0; k < size; ++k) {
      if (prefetch && k + kAhead < size) __builtin_prefetch(&local[ids[k + kAhead]], 1);
      if (local[ids[k]] < 0) {
        local[ids[k]] = static_cast<int32_t>(found.size());
        found.push_back(ids[k]);
      }
      locals[k] = local[ids[k]];
    }
  }
  std::vector<int32_t> local;
  std::vector<int64_t> found;
};

template <typename Table, bool prefetch>
void unique(Table& table, const std::vector<std::vector<Hop>>& batches, std::vector<int32_t>& locals) {
  for (const auto& hops : batches) {
    table.start();
    table.template add<prefetch>(hops[0].nodes, locals.data());
    for (const auto& hop : hops) table.template add<prefetch>(hop.ids, locals.data());
  }
}

void write(const Hop& hop, int64_t fanout, const std::vector<int32_t>& locals, std::vector<int32_t>& src,
           std::vector<int32_t>& dst) {
  std::copy_n(locals.begin(), hop.ids.size(), src.begin());
  auto at = dst.begin();
  for (size_t i = 0; i < hop.nodes.size(); ++i)
    at = std::fill_n(at, std::min(hop.degree[i], fanout), static_cast<int32_t>(i));
}

/// Samples one batch and keeps what each step read.
std::vector<Hop> sample(const Graph& graph, std::vector<int64_t> seeds, int64_t fanout, int hops) {
  tiering::NodeTable table;
  table.start(graph.num_nodes());
  table.make_room(static_cast<int64_t>(seeds.size()));
  for (const int64_t seed : seeds) table.insert(seed);
  std::vector<Hop> done(static_cast<size_t>(hops));
  for (auto& hop : done) {
    hop.nodes.assign(table.nodes().begin(), table.nodes().end());
    hop.begin.resize(hop.nodes.size());
    hop.degree.resize(hop.nodes.size());
    lists<false>(graph, hop);
    int64_t edges = 0;
    for (const int64_t degree : hop.degree) edges += std::min(degree, fanout);
    hop.places.resize(static_cast<size_t>(edges));
    hop.ids.resize(static_cast<size_t>(edges));
    draw(hop, fanout);
    ids<false>(graph, hop);
    table.make_room(edges);
    for (const int32_t id : hop.ids) table.insert(id);
  }
  return done;
}

/// Nanoseconds per edge, best of kRuns after one warm-up.
template <typename Step>
double time_step(int64_t edges, Step step) {
  double best = 1e300;
  for (int run = 0; run <= kRuns; ++run) {
    const auto start = std::chrono::steady_clock::now();
    step();
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
    if (run > 0) best = std::min(best, took.count() / static_cast<double>(edges));
  }
  return best;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) return std::fprintf(stderr, "expected 6 arguments\n"), 1;
  const Graph graph{read_file<int64_t>(argv[1]), read_file<int32_t>(argv[2])};
  const int64_t num_batches = std::atoll(argv[3]), batch_size = std::atoll(argv[4]),
                fanout = std::atoll(argv[5]);
  std::vector<std::vector<Hop>> batches;
  tiering::Stream random(2, 0);
  int64_t edges = 0, nodes = 0;
  size_t longest = 0;
  for (int64_t b = 0; b < num_batches; ++b) {
    std::vector<int64_t> seeds(static_cast<size_t>(batch_size));
    for (auto& seed : seeds)
      seed = static_cast<int64_t>(random.below(static_cast<uint64_t>(graph.num_nodes())));
    batches.push_back(sample(graph, std::move(seeds), fanout, std::atoi(argv[6])));
    for (const auto& hop : batches.back()) {
      edges += static_cast<int64_t>(hop.ids.size());
      longest = std::max({longest, hop.ids.size(), hop.nodes.size()});
    }
    nodes += static_cast<int64_t>(batches.back().back().nodes.size());
  }
  if (edges == 0) return std::fprintf(stderr, "no edge was sampled\n"), 1;
  std::vector<int32_t> locals(longest), src(longest), dst(longest);
  const auto each = [&](auto step) {
    return time_step(edges, [&] {
      for (auto& hops : batches)
        for (auto& hop : hops) step(hop);
    });
  };
  HashTable hash(graph);
  WholeArray whole(graph);
  std::printf("{\"edges\": %lld, \"frontier_nodes\": %lld", static_cast<long long>(edges),
              static_cast<long long>(nodes));
  const auto report = [](const char* name, double value) { std::printf(", \"%s\": %.3f", name, value); };
  report("lists plain", each([&](Hop& hop) { lists<false>(graph, hop); }));
  report("lists ahead", each([&](Hop& hop) { lists<true>(graph, hop); }));
  report("draw", each([&](Hop& hop) { draw(hop, fanout); }));
  report("ids plain", each([&](Hop& hop) { ids<false>(graph, hop); }));
  report("ids ahead", each([&](Hop& hop) { ids<true>(graph, hop); }));
  report("unique hash plain", time_step(edges, [&] { unique<HashTable, false>(hash, batches, locals); }));
  report("unique hash ahead", time_step(edges, [&] { unique<HashTable, true>(hash, batches, locals); }));
  report("unique array plain", time_step(edges, [&] { unique<WholeArray, false>(whole, batches, locals); }));
  report("unique array ahead", time_step(edges, [&] { unique<WholeArray, true>(whole, batches, locals); }));
  report("write", each([&](Hop& hop) { write(hop, fanout, locals, src, dst); }));
  std::printf("}\n");
}
