// Checks of adjacency that came from outside: O(nodes) for indptr, O(edges) for the indices. Throws at the
// first fault in memory order, whatever the number of threads.
#include <tiering/errors.hpp>
#include <tiering/graph.hpp>
#include <tiering/parallel.hpp>
#include <tiering/scan_columns.hpp>

namespace tiering {

void check_indptr(std::span<const int64_t> indptr, int64_t num_indices, const std::string& name, int threads) {
  TIERING_EXPECT(!indptr.empty(), name + " is empty: it needs one entry more than there are columns");
  TIERING_EXPECT(indptr[0] == 0, name, " begins with ", indptr[0], ", expected 0");
  for_cuts(threads, static_cast<int64_t>(indptr.size()) - 1, [&](int64_t begin, int64_t end) {
    for (auto v = static_cast<size_t>(begin); v < static_cast<size_t>(end); ++v)
      TIERING_EXPECT(indptr[v] <= indptr[v + 1], name, " falls from ", indptr[v], " at ", v, " to ", indptr[v + 1],
                     " at ", v + 1);
  });
  TIERING_EXPECT(indptr.back() == num_indices, name, " ends at ", indptr.back(), " but there are ", num_indices,
                 " indices");
}

void check_csc(const CscView& csc, int64_t num_src, int threads) {
  check_indptr(csc, threads);
  csc.indices.visit([&](const auto& indices) {
    for_cuts(threads, csc.num_edges(),
             [&](int64_t begin, int64_t end) { scan_indices(indices, num_src, begin, end, [](int64_t) {}); });
  });
}

}  // namespace tiering
