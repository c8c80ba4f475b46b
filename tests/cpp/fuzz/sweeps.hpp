// Kernels that sweep over all of an adjacency, given a damaged one.
#pragma once

#include <numeric>
#include <set>
#include <tiering/reorder.hpp>

#include "damaged_graph.hpp"
#include "referee.hpp"

namespace tiering::test {

inline IdSpan ids_of(const std::vector<int64_t>& ids) { return {ids.data(), size_of(ids), true}; }

inline IdView view_of(const IdSpan& ids) { return {ids.data, ids.size, ids.wide ? 8 : 4, ids.wide}; }

inline bool all_below(const std::vector<int64_t>& ids, int64_t bound) {
  return std::all_of(ids.begin(), ids.end(), [&](int64_t id) { return id >= 0 && id < bound; });
}

inline bool is_permutation(const std::vector<int64_t>& ids) {
  return all_below(ids, size_of(ids)) && std::set(ids.begin(), ids.end()).size() == ids.size();
}

inline void sweep_relation(Referee& referee, const DamagedGraph& graph, const DamagedRelation& r, int threads) {
  const int64_t num_src = graph.nodes_of(r.src), edges = r.num_edges();
  const bool offsets = r.offsets_sound(), indices = r.indices_sound(num_src);
  const CscView csc = r.csc();
  const auto sum = [](const Buffer<int64_t>& values) {
    return std::accumulate(values.data(), values.data() + values.size(), int64_t{0});
  };
  referee.run("check_csc", exactly(offsets && indices), [&] { check_csc(csc, num_src, threads); });
  referee.run("out_degrees", exactly(indices), [&] {
    referee.require(sum(out_degrees(csc.indices, num_src, threads)) == edges, "out_degrees lost edges");
  });
  referee.run("cumulative weights", exactly(offsets && r.weights_sound()), [&] {
    const auto made = cumulative_weights(r.view(), csc.num_columns(), "relation 0", threads);
    for (int64_t v = 0; v < csc.num_columns(); ++v)
      for (int64_t e = r.indptr[static_cast<size_t>(v)] + 1; e < r.indptr[static_cast<size_t>(v) + 1]; ++e)
        referee.require(made.data()[e - 1] <= made.data()[e], "cumulative weights fall");
  });
}

/// The edges as a chunk of a list that is scattered and sorted, its ids as values beside it.
inline void build_by_buckets(Referee& referee, const DamagedGraph& graph, const DamagedRelation& r, int threads) {
  const int64_t num_src = graph.nodes_of(r.src), edges = r.num_edges();
  const IdView ids = view_of(r.span());
  if (num_src == 0 || edges == 0) return;
  const BucketGrid grid = choose_grid(num_src, 4, 30);
  std::vector<int64_t> counts;
  if (!referee.run("count_buckets", exactly(r.indices_sound(num_src)),
                   [&] { counts = count_buckets(ids, 0, grid, threads); }))
    return;
  Buffer<std::byte> memory(edges * 24 + 32);
  const auto half = static_cast<size_t>(edges * 16);
  const std::span<std::byte> parts[] = {memory.span().first(half), memory.span().subspan(half)};
  referee.run("scatter_edges", Expected::result,
              [&] { scatter_edges({ids, ids, 0, {{}}}, num_src, grid, counts, 0, parts, threads); });
  const auto buckets = static_cast<size_t>(grid.num_buckets());
  for (size_t i = buckets; i < counts.size(); ++i) counts[i % buckets] += counts[i];
  counts.resize(buckets);
  const int64_t places[] = {0, edges * 16}, items[] = {8};
  std::vector<int64_t> indptr(static_cast<size_t>(num_src)), positions(static_cast<size_t>(edges));
  std::vector<int64_t> sorted(static_cast<size_t>(edges));
  const auto width = static_cast<size_t>(scattered_bytes(num_src) / 2);
  const std::span<std::byte> outs[] = {
      std::as_writable_bytes(std::span(sorted)).first(static_cast<size_t>(edges) * width),
      std::as_writable_bytes(std::span(positions))};
  referee.run("sort_runs", Expected::result,
              [&] { sort_runs({memory.span(), places, counts, items}, grid, num_src, 0, indptr, outs, threads); });
}

/// Windows of the relabeled graph, whose offsets were made before the damage came.
inline void relabel_in_windows(Referee& referee, const DamagedGraph& before, const DamagedGraph& graph, size_t at,
                               int threads, Luck& luck) {
  const DamagedRelation &r = graph.relations[at], &was = before.relations[at];
  const auto& sources = graph.old_to_new[static_cast<size_t>(r.src)];
  const auto& columns = graph.old_to_new[static_cast<size_t>(r.dst)];
  const Buffer<int64_t> made =
      relabel_indptr(was.indptr, ids_of(before.old_to_new[static_cast<size_t>(was.dst)]), threads);
  referee.run("relabel_indptr", Expected::either, [&] { relabel_indptr(r.indptr, ids_of(columns), threads); });
  const int64_t edges = was.num_edges(), cut = luck.below(edges + 1), chunk_end = r.num_edges(),
                chunk_first = luck.below(chunk_end + 1);
  const auto* const first = made.data();
  for (const auto& [begin, end] : {std::pair(int64_t{0}, cut), std::pair(cut, edges)}) {
    if (begin == end) continue;
    const int64_t column = std::upper_bound(first, first + made.size(), begin) - first - 1,
                  last = std::lower_bound(first, first + made.size(), end) - first;
    std::vector<int64_t> out(static_cast<size_t>(end - begin));
    const RelabelWindow window{begin, end, column, made.span().subspan(column, last - column), out.data()};
    const OldEntries chunk{r.indptr, ids_of(columns), chunk_first, chunk_end};
    IdSpan part = r.span();
    part.data = static_cast<const char*>(part.data) + chunk_first * (part.wide ? 8 : 4);
    part.size = chunk_end - chunk_first;
    const int64_t num_src = size_of(sources);
    const bool placed =
        referee.run("place_indices", Expected::either, [&] { place_indices(part, num_src, chunk, window, threads); });
    const int64_t half = luck.below(num_src + 1);
    const auto rename = [&](int64_t first, int64_t count) {
      IdSpan map = ids_of(sources);
      map.data = static_cast<const char*>(map.data) + first * (map.wide ? 8 : 4);
      map.size = count;
      rename_sources(out.data(), end - begin, {map, first, num_src}, threads);
    };
    if (placed)
      referee.run("rename_sources", Expected::either, [&] {
        if (half) rename(0, half);
        if (half < num_src) rename(half, num_src - half);
      });
    const std::vector<int64_t> values(static_cast<size_t>(chunk_end - chunk_first));
    referee.run("place_values", Expected::either, [&] { place_values(values.data(), 8, chunk, window, threads); });
  }
}

inline void order_nodes(Referee& referee, const DamagedGraph& graph, int threads) {
  const bool numbers =
      std::none_of(graph.scores.begin(), graph.scores.end(), [](double score) { return std::isnan(score); });
  referee.run("sort_by_score", exactly(numbers), [&] {
    const auto made = std::get<Buffer<int32_t>>(sort_by_score(graph.scores, threads));
    referee.require(is_permutation({made.data(), made.data() + made.size()}), "sort_by_score lost nodes");
  });
  for (const auto& map : graph.old_to_new) {
    const std::vector<std::byte> rows(map.size() * 12);
    std::vector<std::byte> out(map.size() * 12);
    const RowsView table{rows.data(), size_of(map), 12};
    const RowsTarget target{out.data(), size_of(map), 12, 12};
    referee.run("gather_rows", exactly(all_below(map, size_of(map))),
                [&] { gather_rows(table, ids_of(map), target, threads); });
    referee.run("scatter_rows", Expected::result, [&] { scatter_rows(table, ids_of(map), 1, target, 1); });
  }
}

inline void score(Referee& referee, const DamagedGraph& graph, int threads, Luck& luck) {
  const std::vector<NodeValues> values(graph.num_nodes.size(), NodeValues{{}, 0.25, 0.5, {}});
  const auto finite = [&](const std::vector<Buffer<double>>& found) {
    for (const auto& each : found)
      for (const double value : each.span()) referee.require(std::isfinite(value), "a score is not finite");
  };
  referee.run("reverse_pagerank", exactly(graph.sound()), [&] {
    finite(reverse_pagerank(graph.to_score(), graph.num_nodes, values, values, {0.85, 2, 0, threads, {}}).scores);
  });
  const std::vector<std::vector<int64_t>> fanouts(
      2, std::vector<int64_t>(graph.relations.size(), luck.of<int64_t>({-1, 1, 5})));
  const InclusionOptions options{luck.once_in(2), luck.once_in(2), threads, {}};
  referee.run("inclusion_probability", exactly(graph.sound()), [&] {
    finite(inclusion_probability(graph.to_score(), graph.num_nodes, values, fanouts, options).found);
  });
}

}  // namespace tiering::test
