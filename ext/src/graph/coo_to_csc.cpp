// Edge list to CSC.
//
// Returns:    indptr (num_dst + 1), the sources of each column in input order, and where each edge stood if asked.
// Approach:   two reads of the edge list: count per bucket of destinations (checking them), then distribute (checking
//             the sources); then a counting sort per bucket. See group_edges.hpp.
// Input:      src and dst with any stride and of either width, so (2, E) and (E, 2) files are read where they lie.
// Memory, parallelism, determinism: group_edges.hpp.
#include <tiering/errors.hpp>
#include <tiering/graph.hpp>

#include "group_edges.hpp"
#include "id_checks.hpp"

namespace tiering {
namespace {

template <typename Src, typename Dst>
CscArrays group_by_destination(const Src& src, const Dst& dst, int64_t num_edges, int64_t num_src, int64_t num_dst,
                               int threads, bool want_positions) {
  auto destinations = [&](int64_t begin, int64_t end, auto&& f) {
    for (int64_t k = begin; k < end; ++k) {
      const int64_t v = dst[k];
      if (!in_range(v, num_dst)) edge_out_of_range(k, "destination", v, num_dst);
      f(v);
    }
  };
  auto edges = [&](int64_t begin, int64_t end, auto&& f) {
    for (int64_t k = begin; k < end; ++k) {
      const int64_t u = src[k];
      if (!in_range(u, num_src)) edge_out_of_range(k, "source", u, num_src);
      f(dst[k], u, k);
    }
  };
  return group_edges(num_edges, num_dst, num_src, threads, want_positions, destinations, edges);
}

}  // namespace

CscArrays coo_to_csc(const IdView& src, const IdView& dst, int64_t num_src, int64_t num_dst, int threads,
                     bool want_positions) {
  TIERING_EXPECT(src.size == dst.size, "src has " + std::to_string(src.size) + " entries, dst has " +
                                           std::to_string(dst.size) + ": one of each per edge is needed");
  TIERING_EXPECT(num_src >= 0 && num_dst >= 0, "numbers of nodes must not be negative");
  return src.visit([&](const auto& s) {
    return dst.visit(
        [&](const auto& d) { return group_by_destination(s, d, src.size, num_src, num_dst, threads, want_positions); });
  });
}

}  // namespace tiering
