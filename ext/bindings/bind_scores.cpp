// Bindings of ext/src/scores.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <limits>
#include <optional>
#include <tiering/scores.hpp>
#include <variant>

#include "ndarray_types.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace tiering::bind;

namespace {

using Relation = std::tuple<int, int, AnyArray, AnyArray>;

/// Values of nodes: an array of all, or (rest, chosen, ids).
using Values = std::variant<AnyArray, std::tuple<double, double, AnyArray>>;

tiering::NodeValues node_values(const Values& given, const char* name, int64_t num_nodes) {
  if (const auto* each = std::get_if<AnyArray>(&given)) {
    const auto values = score_span(*each, name);
    TIERING_EXPECT(!values.empty() || num_nodes == 0,
                   std::string(name) + ": need " + std::to_string(num_nodes) + " values, found none");
    return {values};
  }
  const auto& [rest, chosen, ids] = std::get<1>(given);
  return {{}, rest, chosen, value_span<int64_t>(ids, name, "contiguous 1-D int64 array of ids")};
}

std::vector<tiering::NodeValues> all_values(const std::vector<Values>& given, const char* name,
                                            const std::vector<int64_t>& num_nodes) {
  std::vector<tiering::NodeValues> values;
  for (size_t t = 0; t < given.size(); ++t)
    values.push_back(node_values(given[t], name, t < num_nodes.size() ? num_nodes[t] : 0));
  return values;
}

/// Nodes of the source and of the destination type, edges, in-degrees of some columns.
using Sizes = std::tuple<int64_t, int64_t, int64_t, AnyArray>;

using File = std::tuple<std::string, nb::object>;  ///< path, and who is told of what is read of it, or None

/// The memory a caller gave; Ctrl-C ends the work.
tiering::ScoreMemory memory_of(std::optional<int64_t> bytes, const std::string& scratch) {
  tiering::ScoreMemory memory;
  if (bytes) memory.bytes = *bytes;
  memory.scratch = scratch;
  memory.poll = [] {
    nb::gil_scoped_acquire held;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  };
  return memory;
}

std::vector<tiering::ScoreRelation> relation_views(const std::vector<Relation>& relations,
                                                   const std::vector<File>& files) {
  TIERING_EXPECT(files.empty() || files.size() == relations.size(),
                 "files: expected one per relation, or none");
  std::vector<tiering::ScoreRelation> views;
  for (const auto& [src_type, dst_type, indptr, indices] : relations)
    views.push_back({src_type, dst_type, csc_view(indptr, indices), {}});
  for (size_t r = 0; r < files.size(); ++r) {
    const auto& [path, passed] = files[r];
    views[r].file.path = path;
    if (passed.is_none()) continue;
    views[r].file.passed = [call = nb::handle(passed)](int64_t offset, std::span<const std::byte> bytes) {
      const nb::gil_scoped_acquire held;
      auto* const data = reinterpret_cast<char*>(const_cast<std::byte*>(bytes.data()));
      call(offset,
           nb::steal(PyMemoryView_FromMemory(data, static_cast<Py_ssize_t>(bytes.size()), PyBUF_READ)));
    };
  }
  return views;
}

nb::list to_list(std::vector<tiering::Buffer<double>>&& buffers) {
  nb::list arrays;
  for (auto& values : buffers) arrays.append(to_numpy(std::move(values)));
  return arrays;
}

nb::tuple plan_sweeps(const std::vector<Sizes>& relations, int threads, std::optional<int64_t> memory,
                      bool from_files) {
  check_threads(threads);
  std::vector<tiering::SweepRelation> sizes;
  for (const auto& [sources, columns, edges, degrees] : relations)
    sizes.push_back({sources, columns, edges,
                     value_span<int64_t>(degrees, "degrees", "contiguous 1-D int64 array of degrees")});
  const auto need = tiering::plan_sweeps(
      sizes, threads, memory.value_or(std::numeric_limits<int64_t>::max()), from_files);
  return nb::make_tuple(need.minimum, need.sufficient, need.scratch);
}

nb::tuple reverse_pagerank(const std::vector<Relation>& relations, const std::vector<int64_t>& num_nodes,
                           const std::vector<Values>& start, const std::vector<Values>& teleport,
                           double damping, int max_sweeps, double tolerance, int threads,
                           std::optional<int64_t> memory, const std::string& scratch,
                           const std::vector<File>& files) {
  check_threads(threads);
  const auto views = relation_views(relations, files);
  const auto starts = all_values(start, "start", num_nodes),
             teleports = all_values(teleport, "teleport", num_nodes);
  const tiering::PagerankOptions options{damping, max_sweeps, tolerance, threads, memory_of(memory, scratch)};
  auto result =
      without_gil([&] { return tiering::reverse_pagerank(views, num_nodes, starts, teleports, options); });
  return nb::make_tuple(to_list(std::move(result.scores)), result.sweeps, result.residual);
}

nb::tuple inclusion_probability(const std::vector<Relation>& relations, const std::vector<int64_t>& num_nodes,
                                const std::vector<Values>& p0,
                                const std::vector<std::vector<int64_t>>& fanouts, const std::string& frontier,
                                bool replacement, int threads, std::optional<int64_t> memory,
                                const std::string& scratch, const std::vector<File>& files) {
  check_threads(threads);
  TIERING_EXPECT(frontier == "all" || frontier == "new", "frontier: expected all or new, found " + frontier);
  const auto views = relation_views(relations, files);
  const auto seeds = all_values(p0, "p0", num_nodes);
  const tiering::InclusionOptions options{frontier == "new", replacement, threads,
                                          memory_of(memory, scratch)};
  auto result =
      without_gil([&] { return tiering::inclusion_probability(views, num_nodes, seeds, fanouts, options); });
  return nb::make_tuple(to_list(std::move(result.found)), to_list(std::move(result.reads)));
}

}  // namespace

void bind_scores(nb::module_& m) {
  m.def("plan_sweeps", &plan_sweeps, "relations"_a, "threads"_a, "memory"_a = nb::none(),
        "from_files"_a = false);
  m.def("reverse_pagerank", &reverse_pagerank, "relations"_a, "num_nodes"_a, "start"_a, "teleport"_a,
        "damping"_a = 0.85, "max_sweeps"_a = 5, "tolerance"_a = 0.0, "threads"_a = 1, "memory"_a = nb::none(),
        "scratch"_a = ".", "files"_a = std::vector<File>{});
  m.def("inclusion_probability", &inclusion_probability, "relations"_a, "num_nodes"_a, "p0"_a, "fanouts"_a,
        "frontier"_a = "all", "replacement"_a = false, "threads"_a = 1, "memory"_a = nb::none(),
        "scratch"_a = ".", "files"_a = std::vector<File>{});
}
