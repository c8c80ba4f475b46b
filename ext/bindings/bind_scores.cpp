// Bindings of ext/src/scores.
#include <tiering/scores.hpp>

#include "ndarray_types.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace tiering::bind;

namespace {

using Values = std::span<const double>;
using Relation = std::tuple<int, int, Array<std::span<const int64_t>>, Array<tiering::IdSpan>>;
/// A path, and a callable that sees the offsets and bytes read from the file.
using File = std::tuple<std::string, std::optional<nb::typed<nb::callable, void(...)>>>;

/// Values of the nodes of each type: an array of all, or (rest, chosen, ids).
using Nodes = std::vector<std::variant<Array<Values>, std::tuple<double, double, Array<std::span<const int64_t>>>>>;

std::vector<tiering::NodeValues> all_values(const Nodes& given, const char* name,
                                            const std::vector<int64_t>& num_nodes) {
  std::vector<tiering::NodeValues> values;
  for (size_t t = 0; t < given.size(); ++t) {
    if (const auto* each = std::get_if<0>(&given[t])) {
      values.push_back({each->get(name)});
      TIERING_EXPECT(!values.back().each.empty() || t >= num_nodes.size() || num_nodes[t] == 0, name, ": need ",
                     num_nodes[t], " values, found none");
    } else {
      const auto& [rest, chosen, ids] = std::get<1>(given[t]);
      values.push_back({{}, rest, chosen, ids.get(name)});
    }
  }
  return values;
}

/// The memory a caller gave; Ctrl-C ends the work.
tiering::ScoreMemory memory_of(std::optional<int64_t> bytes, const std::string& scratch) {
  tiering::ScoreMemory memory;
  memory.bytes = bytes.value_or(memory.bytes);
  memory.scratch = scratch;
  memory.poll = [] {
    nb::gil_scoped_acquire held;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  };
  return memory;
}

std::vector<tiering::ScoreRelation> relation_views(const std::vector<Relation>& relations,
                                                   const std::vector<File>& files) {
  TIERING_EXPECT(files.empty() || files.size() == relations.size(), "files: expected one per relation, or none");
  std::vector<tiering::ScoreRelation> views;
  for (const auto& [src_type, dst_type, indptr, indices] : relations)
    views.push_back({src_type, dst_type, csc_view(indptr.get("indptr"), indices.get("indices")), {}});
  for (size_t r = 0; r < files.size(); ++r) {
    const auto& [path, reader] = files[r];
    views[r].file.path = path;
    if (!reader) continue;
    views[r].file.passed = [call = nb::handle(*reader)](int64_t offset, std::span<const std::byte> bytes) {
      const nb::gil_scoped_acquire held;
      auto* const data = reinterpret_cast<char*>(const_cast<std::byte*>(bytes.data()));
      call(offset, nb::steal(PyMemoryView_FromMemory(data, static_cast<Py_ssize_t>(bytes.size()), PyBUF_READ)));
    };
  }
  return views;
}

/// A relation is (nodes of the source type, of the destination type, edges, in-degrees of some columns).
auto plan_sweeps(const std::vector<std::tuple<int64_t, int64_t, int64_t, Array<std::span<const int64_t>>>>& relations,
                 int threads, std::optional<int64_t> memory, bool from_files) {
  std::vector<tiering::SweepRelation> sizes;
  for (const auto& [sources, columns, edges, degrees] : relations)
    sizes.push_back({sources, columns, edges, degrees.get("degrees")});
  const auto need =
      tiering::plan_sweeps(sizes, threads, memory.value_or(std::numeric_limits<int64_t>::max()), from_files);
  return std::tuple(need.minimum, need.sufficient, need.scratch);
}

auto reverse_pagerank(const std::vector<Relation>& relations, const std::vector<int64_t>& num_nodes, const Nodes& start,
                      const Nodes& teleport, double damping, int max_sweeps, double tolerance, int threads,
                      std::optional<int64_t> memory, const std::string& scratch, const std::vector<File>& files) {
  const tiering::PagerankOptions options{damping, max_sweeps, tolerance, threads, memory_of(memory, scratch)};
  auto result =
      tiering::reverse_pagerank(relation_views(relations, files), num_nodes, all_values(start, "start", num_nodes),
                                all_values(teleport, "teleport", num_nodes), options);
  return std::tuple(std::move(result.scores), result.sweeps, result.residual);
}

/// `restart` of all nodes but the `chosen` ids, and of these.
auto update_scores(Values sums, std::pair<double, double> restart, std::span<const int64_t> chosen, double damping,
                   int shift, std::span<double> scores) {
  return tiering::update_scores(sums, {{}, restart.first, restart.second, chosen}, damping, shift, scores);
}

auto inclusion_probability(const std::vector<Relation>& relations, const std::vector<int64_t>& num_nodes,
                           const Nodes& p0, const std::vector<std::vector<int64_t>>& fanouts,
                           const std::string& frontier, bool replacement, int threads, std::optional<int64_t> memory,
                           const std::string& scratch, const std::vector<File>& files) {
  TIERING_EXPECT(frontier == "all" || frontier == "new", "frontier: expected all or new, found " + frontier);
  const tiering::InclusionOptions options{frontier == "new", replacement, threads, memory_of(memory, scratch)};
  auto result = tiering::inclusion_probability(relation_views(relations, files), num_nodes,
                                               all_values(p0, "p0", num_nodes), fanouts, options);
  return std::tuple(std::move(result.found), std::move(result.reads));
}

void draw_lists(Values fresh, std::span<const int64_t> degrees, std::span<double> drawn,
                const std::optional<std::span<double>>& waiting, int64_t fanout, bool replacement,
                std::span<double> logs) {
  for (const size_t size : {fresh.size(), degrees.size(), drawn.size()})
    TIERING_EXPECT(size == logs.size(), "lists: expected ", logs.size(), " of each, found ", size);
  TIERING_EXPECT(!waiting || waiting->size() == logs.size(), "waiting: expected one for each list");
  tiering::draw_lists({degrees, drawn, waiting.value_or(std::span<double>())}, fresh, fanout, replacement, logs);
}

void find_nodes(Values seeds, Values sums, std::span<double> found) {
  TIERING_EXPECT(seeds.size() == found.size() && sums.size() == found.size(), "nodes: expected ", found.size(),
                 " of each");
  tiering::find_nodes(seeds, sums, found);
}

auto count_by_bin(std::span<const int64_t> indptr, const tiering::IdSpan& indices, int64_t num_src, int threads) {
  return tiering::count_by_bin(csc_view(indptr, indices), num_src, threads);
}

/// The edges, and for columns of high degree and the others where blocks begin, in rows of the bins.
auto bin_edges(std::span<const int64_t> indptr, const tiering::IdSpan& indices, int64_t num_src, int64_t high_degree,
               int threads) {
  tiering::BinnedCsc binned(csc_view(indptr, indices), num_src, high_degree, threads);
  return std::tuple(std::move(binned.edges), std::move(binned.starts[0]), std::move(binned.starts[1]));
}

}  // namespace

void bind_scores(nb::module_& m) {
  define(m, "plan_sweeps", &plan_sweeps, "relations"_a, "threads"_a, "memory"_a = nb::none(), "from_files"_a = false);
  define(m, "reverse_pagerank", &reverse_pagerank, "relations"_a, "num_nodes"_a, "start"_a, "teleport"_a,
         "damping"_a = 0.85, "max_sweeps"_a = 5, "tolerance"_a = 0.0, "threads"_a = 1, "memory"_a = nb::none(),
         "scratch"_a = ".", "files"_a = nb::make_tuple());
  define(m, "inclusion_probability", &inclusion_probability, "relations"_a, "num_nodes"_a, "p0"_a, "fanouts"_a,
         "frontier"_a = "all", "replacement"_a = false, "threads"_a = 1, "memory"_a = nb::none(), "scratch"_a = ".",
         "files"_a = nb::make_tuple());
  define(m, "update_scores", &update_scores, "sums"_a, "restart"_a, "chosen"_a, "damping"_a, "shift"_a, "scores"_a);
  define(m, "draw_lists", &draw_lists, "fresh"_a, "degrees"_a, "drawn"_a, "waiting"_a.none(), "fanout"_a,
         "replacement"_a, "logs"_a);
  define(m, "find_nodes", &find_nodes, "seeds"_a, "sums"_a, "found"_a);
  m.def("source_bin_shift", &tiering::source_bin_shift, "num_nodes"_a);
  m.def("high_column_degree", &tiering::high_column_degree, "columns"_a, "num_sources"_a);
  define(m, "count_by_bin", &count_by_bin, "indptr"_a, "indices"_a, "num_src"_a, "threads"_a = 1);
  define(m, "bin_edges", &bin_edges, "indptr"_a, "indices"_a, "num_src"_a, "high_degree"_a, "threads"_a = 1);
  nb::class_<tiering::BinSums> sums(m, "BinSums");
  sums.def("take", &tiering::BinSums::take, Release());
  define(
      sums, "__init__",
      +[](tiering::BinSums* self, int64_t num_sources, int shift, std::span<const int64_t> bin_edges, int64_t all_edges,
          int64_t min_piece, int64_t max_pieces) {
        new (self) tiering::BinSums(num_sources, shift, bin_edges, all_edges, min_piece, max_pieces);
      },
      "num_sources"_a, "shift"_a, "bin_edges"_a, "all_edges"_a, "min_piece"_a = 0, "max_pieces"_a = 0);
  define(sums, "add", &tiering::BinSums::add, "edges"_a, "starts"_a, "values"_a.none(), "threads"_a = 1);
}
