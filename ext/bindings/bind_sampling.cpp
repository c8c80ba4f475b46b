// Bindings of ext/src/sampling.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ndarray_types.hpp"
#include "tiering/errors.hpp"
#include "tiering/sampling/cumulative_weights.hpp"
#include "tiering/sampling/sampler.hpp"

namespace nb = nanobind;
using namespace tiering;

namespace {

using AnyIds = nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using LongIds = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Counters = nb::ndarray<int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using AnyWeights = nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Marks = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Relation = std::tuple<std::string, int, int, LongIds, AnyIds, std::optional<AnyWeights>>;
using Walks = std::tuple<int64_t, int64_t, double, std::vector<std::vector<int>>>;
using Epoch = std::vector<std::pair<LongIds, LongIds>>;

IdArray view_ids(const AnyIds& ids, const std::string& what) {
  IdArray view{.size = static_cast<int64_t>(ids.shape(0))};
  if (ids.dtype() == nb::dtype<int32_t>())
    view.narrow = static_cast<const int32_t*>(ids.data());
  else if (ids.dtype() == nb::dtype<int64_t>())
    view.wide = static_cast<const int64_t*>(ids.data());
  else
    throw InputError(what + ": expected int32 or int64");
  return view;
}

WeightArray view_weights(const std::optional<AnyWeights>& weights) {
  if (!weights) return {};
  WeightArray view{.size = static_cast<int64_t>(weights->shape(0))};
  if (weights->dtype() == nb::dtype<float>())
    view.narrow = static_cast<const float*>(weights->data());
  else if (weights->dtype() == nb::dtype<double>())
    view.wide = static_cast<const double*>(weights->data());
  else
    throw InputError("weights: expected float32 or float64");
  return view;
}

Rule parse_rule(const std::string& name) {
  if (name == "uniform") return Rule::uniform;
  if (name == "replacement") return Rule::replacement;
  if (name == "weighted") return Rule::weighted;
  if (name == "pinsage") return Rule::pinsage;
  if (name == "ladies") return Rule::ladies;
  throw InputError("rule: expected uniform, replacement, weighted, pinsage or ladies, found " + name);
}

WalkRule parse_walks(const Walks& walks) {
  const auto& [num_walks, walk_length, restart, metapaths] = walks;
  TIERING_EXPECT(restart >= 0.0 && restart <= 1.0, "restart: expected a probability");
  const auto parts = static_cast<uint64_t>(restart * static_cast<double>(WalkRule::kCertain));
  return {num_walks, walk_length, parts, metapaths};
}

/// Hands a buffer over to numpy without a copy.
template <typename T>
nb::object to_numpy(GrowingArray<T>&& buffer) {
  auto owned = std::make_unique<GrowingArray<T>>(std::move(buffer));
  T* data = owned->data();
  const auto size = static_cast<size_t>(owned->size());
  nb::capsule owner(owned.release(), [](void* p) noexcept { delete static_cast<GrowingArray<T>*>(p); });
  return nb::ndarray<nb::numpy, T, nb::ndim<1>>(data, {size}, owner).cast();
}

/// The sampler and the arrays that it reads.
class BoundSampler {
 public:
  BoundSampler(std::vector<std::string> type_names, std::vector<int64_t> num_nodes,
               std::vector<Relation> relations, std::vector<std::vector<int64_t>> fanouts,
               const std::string& frontier, std::vector<std::optional<AnyIds>> node_keys, uint64_t seed,
               const std::string& rule, const std::optional<Walks>& walks, int threads)
      : relations_(std::move(relations)), node_keys_(std::move(node_keys)) {
    SamplerConfig config;
    config.type_names = std::move(type_names);
    config.num_nodes = std::move(num_nodes);
    config.fanouts = std::move(fanouts);
    config.seed = seed;
    TIERING_EXPECT(frontier == "all" || frontier == "new",
                   "frontier: expected all or new, found " + frontier);
    config.frontier = frontier == "all" ? Frontier::all : Frontier::only_new;
    config.rule = parse_rule(rule);
    if (walks) config.walks = parse_walks(*walks);
    for (const auto& [name, src, dst, indptr, indices, weights] : relations_) {
      TIERING_EXPECT(
          dst >= 0 && static_cast<size_t>(dst) < config.num_nodes.size() &&
              static_cast<int64_t>(indptr.shape(0)) - 1 == config.num_nodes[static_cast<size_t>(dst)],
          "indptr: expected one entry per destination node and one more, found " +
              std::to_string(indptr.shape(0)));
      config.relations.push_back(
          {src, dst, indptr.data(), view_ids(indices, "indices"), view_weights(weights), name});
    }
    for (const auto& keys : node_keys_)
      config.node_keys.push_back(keys ? view_ids(*keys, "node_keys") : IdArray{});
    nb::gil_scoped_release release;
    sampler_ = std::make_unique<Sampler>(std::move(config), threads);
  }

  nb::tuple sample(const std::vector<LongIds>& seeds, uint64_t epoch, uint64_t batch, bool want_positions) {
    std::vector<SeedView> views;
    for (const auto& list : seeds) views.push_back({list.data(), static_cast<int64_t>(list.shape(0))});
    SampledBatch result;
    {
      nb::gil_scoped_release release;
      result = sampler_->sample(views, epoch, batch, want_positions);
    }
    nb::list nodes, hops;
    for (auto& list : result.nodes) nodes.append(to_numpy(std::move(list)));
    for (auto& hop : result.hops) {
      nb::list of_hop;
      for (auto& edges : hop) {
        nb::object positions = nb::none();
        if (want_positions) positions = to_numpy(std::move(edges.positions));
        nb::object weights = nb::none();
        if (sampler_->config().weighs_edges()) weights = to_numpy(std::move(edges.weights));
        of_hop.append(nb::make_tuple(to_numpy(std::move(edges.src)), to_numpy(std::move(edges.dst)),
                                     positions, weights));
      }
      hops.append(of_hop);
    }
    return nb::make_tuple(nodes, nb::cast(result.num_nodes), hops);
  }

  void count_accesses(const Epoch& seeds, uint64_t epoch, int64_t first, int64_t last,
                      const std::vector<Counters>& features, const std::vector<Counters>& adjacency,
                      int threads) {
    const EpochSeeds views = view_epoch(seeds);
    const AccessCounts counts = view_counts(features, adjacency);
    nb::gil_scoped_release release;
    sampler_->count_accesses(views, epoch, first, last, counts, threads);
  }

  nb::object count_marks(const Epoch& seeds, uint64_t epoch, int64_t first, int64_t last,
                         const std::vector<std::vector<std::optional<Marks>>>& maps, int64_t num_marks,
                         const std::vector<Counters>& features, const std::vector<Counters>& adjacency,
                         int threads) {
    TIERING_EXPECT(num_marks >= 1 && num_marks <= 256, "num_marks: expected 1 to 256");
    TIERING_EXPECT(first <= last, "last: expected " + std::to_string(first) + " or more");
    const EpochSeeds views = view_epoch(seeds);
    const std::vector<int64_t>& num_nodes = sampler_->config().num_nodes;
    std::vector<MarkMap> found;
    for (const auto& map : maps) {
      TIERING_EXPECT(map.size() == num_nodes.size(), "marks: expected one array per node type");
      found.emplace_back();
      for (size_t t = 0; t < map.size(); ++t) {
        TIERING_EXPECT(!map[t] || static_cast<int64_t>(map[t]->shape(0)) == num_nodes[t],
                       "marks of type " + sampler_->config().type_name(t) + ": expected one per node");
        found.back().marks.push_back(map[t] ? map[t]->data() : nullptr);
      }
    }
    const AccessCounts counts = view_counts(features, adjacency);
    GrowingArray<int64_t> out;
    const auto batches = static_cast<size_t>(last - first);
    {
      nb::gil_scoped_release release;
      out.resize(static_cast<int64_t>(maps.size() * batches) * num_marks);
      sampler_->count_marks(views, epoch, first, last, found, num_marks, out.data(),
                            features.empty() ? nullptr : &counts, threads);
    }
    auto owned = std::make_unique<GrowingArray<int64_t>>(std::move(out));
    int64_t* data = owned->data();
    nb::capsule owner(owned.release(),
                      [](void* p) noexcept { delete static_cast<GrowingArray<int64_t>*>(p); });
    return nb::ndarray<nb::numpy, int64_t, nb::ndim<3>>(
               data, {maps.size(), batches, static_cast<size_t>(num_marks)}, owner)
        .cast();
  }

 private:
  static EpochSeeds view_epoch(const Epoch& seeds) {
    EpochSeeds views;
    for (const auto& [ids, offsets] : seeds) {
      check_offsets(ids, offsets);
      views.ids.push_back(ids.data());
      views.offsets.push_back(offsets.data());
      views.num_batches.push_back(static_cast<int64_t>(offsets.shape(0)) - 1);
    }
    return views;
  }

  static void check_offsets(const LongIds& ids, const LongIds& offsets) {
    TIERING_EXPECT(offsets.shape(0) > 0 && offsets(0) >= 0,
                   "offsets: expected at least one entry, the first 0");
    for (size_t i = 0; i + 1 < offsets.shape(0); ++i)
      TIERING_EXPECT(offsets(i) <= offsets(i + 1), "offsets: entry " + std::to_string(i + 1) + " decreases");
    TIERING_EXPECT(offsets(offsets.shape(0) - 1) <= static_cast<int64_t>(ids.shape(0)),
                   "offsets: the last entry is beyond the " + std::to_string(ids.shape(0)) + " seeds");
  }

  AccessCounts view_counts(const std::vector<Counters>& features,
                           const std::vector<Counters>& adjacency) const {
    const SamplerConfig& config = sampler_->config();
    AccessCounts counts;
    for (size_t t = 0; t < features.size(); ++t)
      counts.features.push_back(checked_counters(features[t], config.num_nodes, t, "features"));
    std::vector<int64_t> destinations;
    for (const auto& relation : config.relations)
      destinations.push_back(config.num_nodes[static_cast<size_t>(relation.dst_type)]);
    for (size_t r = 0; r < adjacency.size(); ++r)
      counts.adjacency.push_back(checked_counters(adjacency[r], destinations, r, "adjacency"));
    return counts;
  }

  static int64_t* checked_counters(const Counters& counters, const std::vector<int64_t>& sizes, size_t i,
                                   const std::string& what) {
    TIERING_EXPECT(i < sizes.size() && static_cast<int64_t>(counters.shape(0)) == sizes[i],
                   what + " counters " + std::to_string(i) + ": found " + std::to_string(counters.shape(0)) +
                       " entries, expected one per node");
    return counters.data();
  }

  std::vector<Relation> relations_;  // keep the arrays alive
  std::vector<std::optional<AnyIds>> node_keys_;
  std::unique_ptr<Sampler> sampler_;
};

nb::object bound_epoch_order(int64_t n, uint64_t seed, uint64_t epoch) {
  TIERING_EXPECT(n >= 0, "n: expected 0 or more, found " + std::to_string(n));
  GrowingArray<int64_t> order;
  {
    nb::gil_scoped_release release;
    order.resize(n);
    epoch_order(n, seed, epoch, order.data());
  }
  return to_numpy(std::move(order));
}

/// Running sums of a relation's weights, as the weighted rule draws by them.
nb::object bound_cumulative_weights(const LongIds& indptr, const AnyWeights& weights, const std::string& what,
                                    int threads) {
  TIERING_EXPECT(indptr.shape(0) > 0, "indptr: expected at least one entry");
  const WeightArray view = view_weights(weights);
  const RelationView relation{.indptr = indptr.data(), .indices = {.size = view.size}, .weights = view};
  const auto columns = static_cast<int64_t>(indptr.shape(0)) - 1;
  return bind::to_numpy(
      bind::without_gil([&] { return CumulativeWeights(relation, columns, what, threads).take(); }));
}

}  // namespace

void bind_sampling(nb::module_& m) {
  m.attr("MOST_VISITS") = WalkRule::kMostVisits;
  nb::class_<BoundSampler>(m, "Sampler")
      .def(nb::init<std::vector<std::string>, std::vector<int64_t>, std::vector<Relation>,
                    std::vector<std::vector<int64_t>>, const std::string&, std::vector<std::optional<AnyIds>>,
                    uint64_t, const std::string&, const std::optional<Walks>&, int>(),
           nb::arg("type_names"), nb::arg("num_nodes"), nb::arg("relations"), nb::arg("fanouts"),
           nb::arg("frontier"), nb::arg("node_keys"), nb::arg("seed"), nb::arg("rule") = "uniform",
           nb::arg("walks") = nb::none(), nb::arg("threads") = 1)
      .def("sample", &BoundSampler::sample, nb::arg("seeds"), nb::arg("epoch"), nb::arg("batch"),
           nb::arg("want_positions") = false)
      .def("count_accesses", &BoundSampler::count_accesses, nb::arg("seeds"), nb::arg("epoch"),
           nb::arg("first"), nb::arg("last"), nb::arg("features"), nb::arg("adjacency"), nb::arg("threads"))
      .def("count_marks", &BoundSampler::count_marks, nb::arg("seeds"), nb::arg("epoch"), nb::arg("first"),
           nb::arg("last"), nb::arg("maps"), nb::arg("num_marks"), nb::arg("features"), nb::arg("adjacency"),
           nb::arg("threads"));
  m.def("cumulative_weights", &bound_cumulative_weights, nb::arg("indptr"), nb::arg("weights"),
        nb::arg("what"), nb::arg("threads") = 1);
  m.def("epoch_order", &bound_epoch_order, nb::arg("n"), nb::arg("seed"), nb::arg("epoch"));
}
