// Bindings of ext/src/scores.
#include <tiering/scores.hpp>

#include "ndarray_types.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace tiering::bind;

namespace {

/// A callable that sees the bytes read from a file.
struct Reader {
  nb::object call;
};

}  // namespace

template <>
struct nb::detail::type_caster<Reader> {
  NB_TYPE_CASTER(Reader, const_name("collections.abc.Callable[[int, memoryview], None]"))

  bool from_python(handle source, auto, cleanup_list*) noexcept {
    value.call = nb::borrow(source);
    return PyCallable_Check(source.ptr()) != 0;
  }
};

namespace {

using Relation = std::tuple<int, int, Values<const int64_t, "indptr">, Ids<"indices">>;
using File = std::tuple<std::string, std::optional<Reader>>;

/// Values of nodes: an array of all, or (rest, chosen, ids).
template <Name kName>
using Nodes = std::variant<Values<const double, kName>, std::tuple<double, double, Values<const int64_t, kName>>>;

template <Name kName>
std::vector<tiering::NodeValues> all_values(const std::vector<Nodes<kName>>& given,
                                            const std::vector<int64_t>& num_nodes) {
  std::vector<tiering::NodeValues> values;
  for (size_t t = 0; t < given.size(); ++t) {
    if (const auto* each = std::get_if<0>(&given[t])) {
      values.push_back({each->get()});
      TIERING_EXPECT(!values.back().each.empty() || t >= num_nodes.size() || num_nodes[t] == 0, std::string(kName.text),
                     ": need ", num_nodes[t], " values, found none");
    } else {
      const auto& [rest, chosen, ids] = std::get<1>(given[t]);
      values.push_back({{}, rest, chosen, ids});
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
    views.push_back({src_type, dst_type, csc_view(indptr, indices), {}});
  for (size_t r = 0; r < files.size(); ++r) {
    const auto& [path, reader] = files[r];
    views[r].file.path = path;
    if (!reader) continue;
    views[r].file.passed = [call = nb::handle(reader->call)](int64_t offset, std::span<const std::byte> bytes) {
      const nb::gil_scoped_acquire held;
      auto* const data = reinterpret_cast<char*>(const_cast<std::byte*>(bytes.data()));
      call(offset, nb::steal(PyMemoryView_FromMemory(data, static_cast<Py_ssize_t>(bytes.size()), PyBUF_READ)));
    };
  }
  return views;
}

/// A relation is (nodes of the source type, of the destination type, edges, in-degrees of some columns).
auto plan_sweeps(const std::vector<std::tuple<int64_t, int64_t, int64_t, Values<const int64_t, "degrees">>>& relations,
                 Threads threads, std::optional<int64_t> memory, bool from_files) {
  std::vector<tiering::SweepRelation> sizes;
  for (const auto& [sources, columns, edges, degrees] : relations) sizes.push_back({sources, columns, edges, degrees});
  const auto need =
      tiering::plan_sweeps(sizes, threads, memory.value_or(std::numeric_limits<int64_t>::max()), from_files);
  return std::tuple(need.minimum, need.sufficient, need.scratch);
}

auto reverse_pagerank(const std::vector<Relation>& relations, const std::vector<int64_t>& num_nodes,
                      const std::vector<Nodes<"start">>& start, const std::vector<Nodes<"teleport">>& teleport,
                      double damping, int max_sweeps, double tolerance, Threads threads, std::optional<int64_t> memory,
                      const std::string& scratch, const std::vector<File>& files) {
  const tiering::PagerankOptions options{damping, max_sweeps, tolerance, threads, memory_of(memory, scratch)};
  auto result = tiering::reverse_pagerank(relation_views(relations, files), num_nodes, all_values(start, num_nodes),
                                          all_values(teleport, num_nodes), options);
  return std::tuple(std::move(result.scores), result.sweeps, result.residual);
}

auto inclusion_probability(const std::vector<Relation>& relations, const std::vector<int64_t>& num_nodes,
                           const std::vector<Nodes<"p0">>& p0, const std::vector<std::vector<int64_t>>& fanouts,
                           const std::string& frontier, bool replacement, Threads threads,
                           std::optional<int64_t> memory, const std::string& scratch, const std::vector<File>& files) {
  TIERING_EXPECT(frontier == "all" || frontier == "new", "frontier: expected all or new, found " + frontier);
  const tiering::InclusionOptions options{frontier == "new", replacement, threads, memory_of(memory, scratch)};
  auto result = tiering::inclusion_probability(relation_views(relations, files), num_nodes, all_values(p0, num_nodes),
                                               fanouts, options);
  return std::tuple(std::move(result.found), std::move(result.reads));
}

using Doubles = Values<const double, "values">;

void draw_lists(const Values<const double, "fresh">& fresh, const Values<const int64_t, "degrees">& degrees,
                const Values<double, "drawn">& drawn, const std::optional<Values<double, "waiting">>& waiting,
                int64_t fanout, bool replacement, const Values<double, "logs">& logs) {
  const tiering::DrawnLists lists{degrees, drawn, waiting ? waiting->get() : std::span<double>{}};
  const std::span<const double> news = fresh;
  const std::span<double> out = logs;
  for (const size_t size : {news.size(), lists.degrees.size(), lists.drawn.size()})
    TIERING_EXPECT(size == out.size(), "lists: expected ", out.size(), " of each, found ", size);
  TIERING_EXPECT(!waiting || lists.waiting.size() == out.size(), "waiting: expected one for each list");
  tiering::draw_lists(lists, news, fanout, replacement, out);
}

void find_nodes(const Values<const double, "seeds">& seeds, const Values<const double, "sums">& sums,
                const Values<double, "found">& found) {
  const std::span<const double> begun = seeds, added = sums;
  const std::span<double> out = found;
  TIERING_EXPECT(begun.size() == out.size() && added.size() == out.size(), "nodes: expected ", out.size(), " of each");
  tiering::find_nodes(begun, added, out);
}

}  // namespace

void bind_scores(nb::module_& m) {
  m.def("plan_sweeps", &plan_sweeps, "relations"_a, "threads"_a, "memory"_a = nb::none(), "from_files"_a = false,
        Release());
  m.def("reverse_pagerank", &reverse_pagerank, "relations"_a, "num_nodes"_a, "start"_a, "teleport"_a,
        "damping"_a = 0.85, "max_sweeps"_a = 5, "tolerance"_a = 0.0, "threads"_a = 1, "memory"_a = nb::none(),
        "scratch"_a = ".", "files"_a = nb::make_tuple(), Release());
  m.def("inclusion_probability", &inclusion_probability, "relations"_a, "num_nodes"_a, "p0"_a, "fanouts"_a,
        "frontier"_a = "all", "replacement"_a = false, "threads"_a = 1, "memory"_a = nb::none(), "scratch"_a = ".",
        "files"_a = nb::make_tuple(), Release());
  m.def("draw_lists", &draw_lists, "fresh"_a, "degrees"_a, "drawn"_a, "waiting"_a.none(), "fanout"_a, "replacement"_a,
        "logs"_a, Release());
  m.def("find_nodes", &find_nodes, "seeds"_a, "sums"_a, "found"_a, Release());
  m.def("source_bin_shift", &tiering::source_bin_shift, "num_nodes"_a);
  m.def("high_column_degree", &tiering::high_column_degree, "columns"_a, "num_sources"_a);
  nb::class_<tiering::BlockSums>(m, "BlockSums")
      .def(nb::new_([](int64_t num_sources, int shift, const Values<const int64_t, "bin_edges">& bin_edges,
                       int64_t all_edges, int64_t min_piece, int64_t max_pieces) {
             return new tiering::BlockSums(num_sources, shift, bin_edges, all_edges, min_piece, max_pieces);
           }),
           "num_sources"_a, "shift"_a, "bin_edges"_a, "all_edges"_a, "min_piece"_a = 0, "max_pieces"_a = 0)
      .def(
          "add",
          [](tiering::BlockSums& self, const Values<const uint32_t, "sources">& sources,
             const Values<const uint32_t, "columns">& columns, const std::optional<Doubles>& values, Threads threads) {
            self.add(sources, columns, values ? std::optional(values->get()) : std::nullopt, threads);
          },
          "sources"_a, "columns"_a, "values"_a.none(), "threads"_a = 1, Release())
      .def("take", &tiering::BlockSums::take, Release());
}
