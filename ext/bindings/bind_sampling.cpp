// Bindings of ext/src/sampling.

#include "ndarray_types.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace tiering;
using namespace tiering::bind;

namespace {

using Ids = std::span<const int64_t>;
using Relation = std::tuple<std::string, int, int, Array<Ids>, Array<IdSpan>, std::optional<Array<WeightArray>>>;
using Subgraphs = std::tuple<bool, bool, bool, bool, int64_t, std::vector<std::optional<Array<Ids>>>>;
using Keys = std::vector<std::optional<Array<IdSpan>>>;
using Walks = std::tuple<int64_t, int64_t, double, std::vector<std::vector<int>>>;
using Epoch = std::vector<std::tuple<Array<Ids>, Array<Ids>>>;
using Counters = std::vector<std::span<int64_t>>;

using Edges = std::tuple<GrowingArray<int32_t>, GrowingArray<int32_t>, std::optional<GrowingArray<int64_t>>,
                         std::optional<GrowingArray<float>>>;
using Batch = std::tuple<std::vector<GrowingArray<int64_t>>, std::vector<std::vector<int64_t>>,
                         std::vector<std::vector<Edges>>, std::vector<GrowingArray<int64_t>>>;

using Window = std::tuple<int64_t, int64_t, std::tuple<int64_t, int64_t, int64_t>, std::vector<Batch>>;

Wanted parse_wanted(const std::string& name) {
  if (name == "nothing") return Wanted::nothing;
  if (name == "unique_nodes") return Wanted::unique_nodes;
  TIERING_EXPECT(name == "edges" || name == "positions", "wanted: found " + name);
  return name == "edges" ? Wanted::edges : Wanted::positions;
}

WalkRule parse_walks(const Walks& walks) {
  const auto& [num_walks, walk_length, restart, metapaths] = walks;
  return {num_walks, walk_length, static_cast<uint64_t>(restart * static_cast<double>(WalkRule::kCertain)), metapaths};
}

/// The sampler and the arrays that it reads.
class BoundSampler {
 public:
  BoundSampler(std::vector<std::string> type_names, std::vector<int64_t> num_nodes,
               const std::vector<Relation>& relations, std::vector<std::vector<int64_t>> fanouts,
               const std::string& frontier, const Keys& node_keys, uint64_t seed, const std::string& rule,
               const std::optional<Walks>& walks, int threads, const std::optional<Subgraphs>& subgraphs)
      : relations_(relations), node_keys_(node_keys), subgraphs_(subgraphs) {
    SamplerConfig config;
    config.type_names = std::move(type_names);
    config.num_nodes = std::move(num_nodes);
    config.fanouts = std::move(fanouts);
    config.seed = seed;
    TIERING_EXPECT(frontier == "all" || frontier == "new", "frontier: expected all or new, found " + frontier);
    config.frontier = frontier == "all" ? Frontier::all : Frontier::only_new;
    config.rule = parse_rule(rule, kNumRules);
    if (walks) config.walks = parse_walks(*walks);
    for (const auto& [name, src, dst, indptr, indices, weights] : relations_) {
      const auto offsets = indptr.get("indptr");
      TIERING_EXPECT(dst >= 0 && static_cast<size_t>(dst) < config.num_nodes.size() &&
                         static_cast<int64_t>(offsets.size()) - 1 == config.num_nodes[dst],
                     "indptr: expected one entry per destination node and one more, found ", offsets.size());
      config.relations.push_back({src,
                                  dst,
                                  offsets.data(),
                                  indices.get("indices"),
                                  weights ? weights->get("weights") : WeightArray{},
                                  {},
                                  name});
    }
    if (subgraphs_) use_subgraphs(config);
    for (const auto& keys : node_keys_) config.node_keys.push_back(keys ? keys->get("node_keys") : IdSpan{});
    sampler_ = std::make_unique<Sampler>(std::move(config), std::max(threads, 1));
  }

  Batch sample(const BatchSeeds& seeds, uint64_t epoch, uint64_t batch, bool want_positions, const SeedTimes& times) {
    return to_batch(sampler_->sample(seeds, epoch, batch, want_positions, times), want_positions);
  }

  std::vector<GrowingArray<int64_t>> sample_nodes(const BatchSeeds& seeds, uint64_t epoch, uint64_t batch,
                                                  const Counters& features, const Counters& adjacency,
                                                  const SeedTimes& times) {
    if (features.empty()) return sampler_->sample_nodes(seeds, epoch, batch, nullptr, times);
    const AccessCounts counts = view_counts(features, adjacency);
    return sampler_->sample_nodes(seeds, epoch, batch, &counts, times);
  }

  Window sample_window(const Epoch& seeds, uint64_t epoch, Ids numbers, int64_t size, const Counters& features,
                       const Counters& adjacency, std::vector<std::string> files, std::vector<std::string> time_files,
                       int64_t room, const std::string& wanted, const SeedTimes& times) {
    const AccessCounts counts = features.empty() ? AccessCounts{} : view_counts(features, adjacency);
    SampledWindow window =
        sampler_->sample_window(view_epoch(seeds, times), epoch, numbers, size, features.empty() ? nullptr : &counts,
                                {std::move(files), std::move(time_files), "auto", room}, parse_wanted(wanted));
    std::vector<Batch> batches;
    for (SampledBatch& batch : window.batches) batches.push_back(to_batch(std::move(batch), wanted == "positions"));
    return {window.size, window.next_size, std::tuple(window.reads, window.read_bytes, window.read_nanoseconds),
            std::move(batches)};
  }

  void count_accesses(const Epoch& seeds, uint64_t epoch, int64_t first, int64_t last, const Counters& features,
                      const Counters& adjacency, int threads, const SeedTimes& times) {
    sampler_->count_accesses(view_epoch(seeds, times), epoch, first, last, view_counts(features, adjacency), threads);
  }

 private:
  Batch to_batch(SampledBatch sampled, bool want_positions) const {
    std::vector<std::vector<Edges>> hops;
    for (auto& hop : sampled.hops) {
      auto& groups = hops.emplace_back();
      for (auto& edges : hop) {
        auto& group = groups.emplace_back(std::move(edges.src), std::move(edges.dst), std::nullopt, std::nullopt);
        if (want_positions) std::get<2>(group) = std::move(edges.positions);
        if (sampler_->config().weighs_edges()) std::get<3>(group) = std::move(edges.weights);
      }
    }
    return {std::move(sampled.nodes), std::move(sampled.num_nodes), std::move(hops), std::move(sampled.instances)};
  }

  void use_subgraphs(SamplerConfig& config) const {
    const auto& [disjoint, induced, real, last, window, times] = *subgraphs_;
    config.disjoint = disjoint;
    config.induced = induced;
    config.time = {real, last, window};
    TIERING_EXPECT(times.empty() || times.size() == config.relations.size(), "times: expected one entry per relation");
    for (size_t r = 0; r < times.size(); ++r)
      if (times[r]) config.relations[r].times = times[r]->get("times");
  }

  static EpochSeeds view_epoch(const Epoch& epoch, const SeedTimes& times) {
    EpochSeeds views;
    views.times = times;
    for (const auto& [seeds, of_batches] : epoch) {
      const auto ids = seeds.get("seeds"), offsets = of_batches.get("offsets");
      TIERING_EXPECT(!offsets.empty() && offsets[0] >= 0, "offsets: expected at least one entry, the first 0");
      for (size_t i = 0; i + 1 < offsets.size(); ++i)
        TIERING_EXPECT(offsets[i] <= offsets[i + 1], "offsets: entry ", i + 1, " decreases");
      TIERING_EXPECT(offsets.back() <= static_cast<int64_t>(ids.size()), "offsets: the last entry is beyond the ",
                     ids.size(), " seeds");
      views.ids.push_back(ids);
      views.offsets.push_back(offsets);
    }
    return views;
  }

  AccessCounts view_counts(const Counters& features, const Counters& adjacency) const {
    const SamplerConfig& config = sampler_->config();
    std::vector<int64_t> destinations;
    for (const auto& relation : config.relations) destinations.push_back(config.num_nodes[relation.dst_type]);
    return {view_counters(features, config.num_nodes, "features"), view_counters(adjacency, destinations, "adjacency")};
  }

  static std::vector<int64_t*> view_counters(const Counters& counters, const std::vector<int64_t>& sizes,
                                             const std::string& what) {
    TIERING_EXPECT(counters.size() == sizes.size(), what, " counters: expected ", sizes.size(), " arrays, found ",
                   counters.size());
    std::vector<int64_t*> views;
    for (const std::span<int64_t> one : counters) {
      const size_t i = views.size();
      TIERING_EXPECT(static_cast<int64_t>(one.size()) == sizes[i], what, " counters ", i, ": found ", one.size(),
                     " entries, expected one per node");
      views.push_back(one.data());
    }
    return views;
  }

  std::vector<Relation> relations_;  // keep the arrays alive
  Keys node_keys_;
  std::optional<Subgraphs> subgraphs_;
  std::unique_ptr<Sampler> sampler_;
};

Buffer<uint64_t> sum_weights(Ids indptr, WeightArray weights, const std::string& what, int threads) {
  TIERING_EXPECT(!indptr.empty(), "indptr: expected at least one entry");
  const RelationView relation{.indptr = indptr.data(), .indices = {.size = weights.size}, .weights = weights};
  return cumulative_weights(relation, static_cast<int64_t>(indptr.size()) - 1, what, threads);
}

}  // namespace

void bind_sampling(nb::module_& m) {
  m.attr("MOST_VISITS") = WalkRule::kMostVisits;
  nb::class_<BoundSampler> sampler(m, "Sampler");
  sampler.def(nb::init<std::vector<std::string>, std::vector<int64_t>, const std::vector<Relation>&,
                       std::vector<std::vector<int64_t>>, const std::string&, const Keys&, uint64_t, const std::string&,
                       const std::optional<Walks>&, int, const std::optional<Subgraphs>&>(),
              "type_names"_a, "num_nodes"_a, "relations"_a, "fanouts"_a, "frontier"_a, "node_keys"_a, "seed"_a,
              "rule"_a = "uniform", "walks"_a = nb::none(), "threads"_a = 1, "subgraphs"_a = nb::none(), Release());
  define(sampler, "sample", &BoundSampler::sample, "seeds"_a, "epoch"_a, "batch"_a, "want_positions"_a = false,
         "times"_a = nb::tuple());
  define(sampler, "sample_nodes", &BoundSampler::sample_nodes, "seeds"_a, "epoch"_a, "batch"_a, "features"_a,
         "adjacency"_a, "times"_a = nb::tuple());
  define(sampler, "count_accesses", &BoundSampler::count_accesses, "seeds"_a, "epoch"_a, "first"_a, "last"_a,
         "features"_a, "adjacency"_a, "threads"_a, "times"_a = nb::tuple());
  define(sampler, "sample_window", &BoundSampler::sample_window, "seeds"_a, "epoch"_a, "numbers"_a, "size"_a,
         "features"_a, "adjacency"_a, "files"_a, "time_files"_a, "room"_a, "wanted"_a, "times"_a = nb::tuple());
  define(m, "cumulative_weights", &sum_weights, "indptr"_a, "weights"_a, "what"_a, "threads"_a = 1);
  define(
      m, "unique_ids",
      +[](Ids ids, int64_t num_nodes) {
        UniqueIds found = unique_ids(ids, num_nodes);
        return std::pair(std::move(found.ids), std::move(found.positions));
      },
      "ids"_a, "num_nodes"_a);
  m.def("epoch_order", &epoch_order, "n"_a, "seed"_a, "epoch"_a, Release());
  m.def("torch_permutation", &torch_permutation, "n"_a, "seed"_a, Release());
}
