// Bindings of ext/src/scores.
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

nb::tuple reverse_pagerank(const std::vector<Relation>& relations, const std::vector<int64_t>& num_nodes,
                           const std::vector<AnyArray>& start, const std::vector<AnyArray>& teleport,
                           double damping, int max_sweeps, double tolerance, int threads) {
  check_threads(threads);
  std::vector<tiering::PagerankRelation> views;
  for (const auto& [src_type, dst_type, indptr, indices] : relations)
    views.push_back({src_type, dst_type, csc_view(indptr, indices)});
  const auto starts = score_spans(start, "start"), teleports = score_spans(teleport, "teleport");
  const tiering::PagerankOptions options{damping, max_sweeps, tolerance, threads};
  auto result =
      without_gil([&] { return tiering::reverse_pagerank(views, num_nodes, starts, teleports, options); });
  nb::list scores;
  for (auto& values : result.scores) scores.append(to_numpy(std::move(values)));
  return nb::make_tuple(scores, result.sweeps, result.residual);
}

}  // namespace

void bind_scores(nb::module_& m) {
  m.def("reverse_pagerank", &reverse_pagerank, "relations"_a, "num_nodes"_a, "start"_a, "teleport"_a,
        "damping"_a = 0.85, "max_sweeps"_a = 5, "tolerance"_a = 0.0, "threads"_a = 1);
}
