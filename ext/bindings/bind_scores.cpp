// Bindings of ext/src/scores.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tiering/scores.hpp>

#include "ndarray_types.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace tiering::bind;

namespace {

using Relation = std::tuple<int, int, AnyArray, AnyArray>;

std::vector<std::span<const double>> score_spans(const std::vector<AnyArray>& arrays, const char* name) {
  std::vector<std::span<const double>> spans;
  for (const auto& a : arrays) spans.push_back(score_span(a, name));
  return spans;
}

std::vector<tiering::ScoreRelation> relation_views(const std::vector<Relation>& relations) {
  std::vector<tiering::ScoreRelation> views;
  for (const auto& [src_type, dst_type, indptr, indices] : relations)
    views.push_back({src_type, dst_type, csc_view(indptr, indices)});
  return views;
}

nb::list to_list(std::vector<tiering::Buffer<double>>&& buffers) {
  nb::list arrays;
  for (auto& values : buffers) arrays.append(to_numpy(std::move(values)));
  return arrays;
}

nb::tuple reverse_pagerank(const std::vector<Relation>& relations, const std::vector<int64_t>& num_nodes,
                           const std::vector<AnyArray>& start, const std::vector<AnyArray>& teleport,
                           double damping, int max_sweeps, double tolerance, int threads) {
  check_threads(threads);
  const auto views = relation_views(relations);
  const auto starts = score_spans(start, "start"), teleports = score_spans(teleport, "teleport");
  const tiering::PagerankOptions options{damping, max_sweeps, tolerance, threads};
  auto result =
      without_gil([&] { return tiering::reverse_pagerank(views, num_nodes, starts, teleports, options); });
  return nb::make_tuple(to_list(std::move(result.scores)), result.sweeps, result.residual);
}

nb::tuple inclusion_probability(const std::vector<Relation>& relations, const std::vector<int64_t>& num_nodes,
                                const std::vector<AnyArray>& p0,
                                const std::vector<std::vector<int64_t>>& fanouts, const std::string& frontier,
                                bool replacement, int threads) {
  check_threads(threads);
  TIERING_EXPECT(frontier == "all" || frontier == "new", "frontier: expected all or new, found " + frontier);
  const auto views = relation_views(relations);
  const auto seeds = score_spans(p0, "p0");
  const tiering::InclusionOptions options{frontier == "new", replacement, threads};
  auto result =
      without_gil([&] { return tiering::inclusion_probability(views, num_nodes, seeds, fanouts, options); });
  return nb::make_tuple(to_list(std::move(result.found)), to_list(std::move(result.reads)));
}

}  // namespace

void bind_scores(nb::module_& m) {
  m.def("reverse_pagerank", &reverse_pagerank, "relations"_a, "num_nodes"_a, "start"_a, "teleport"_a,
        "damping"_a = 0.85, "max_sweeps"_a = 5, "tolerance"_a = 0.0, "threads"_a = 1);
  m.def("inclusion_probability", &inclusion_probability, "relations"_a, "num_nodes"_a, "p0"_a, "fanouts"_a,
        "frontier"_a = "all", "replacement"_a = false, "threads"_a = 1);
}
