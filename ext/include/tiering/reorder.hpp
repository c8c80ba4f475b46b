// Kernels that order nodes and move data into that order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <tiering/buffer.hpp>
#include <tiering/graph.hpp>
#include <tiering/views.hpp>

namespace tiering {

/// The graph under new ids: column j is the old column dst_new_to_old[j], entries mapped by src_old_to_new,
/// their order kept. positions[k] = where in the old `indices` entry k stood.
CscArrays relabel_csc(const CscView& csc, const IdSpan& dst_new_to_old, const IdSpan& src_old_to_new,
                      int threads, bool want_positions);

/// Old ids by descending score, ties by ascending id. Throws InputError naming the first NaN.
IdBuffer sort_by_score(std::span<const double> scores, int threads);

/// inverse[p[i]] = i. Throws InputError unless p holds every id in [0, n) once.
IdBuffer invert_permutation(const IdSpan& p, int threads);

/// A table of rows of equal length, contiguous from row to row.
struct RowsView {
  const std::byte* data = nullptr;
  int64_t num_rows = 0;
  int64_t row_bytes = 0;
};

/// Where gathered rows go: row i at data + i * stride_bytes.
struct RowsTarget {
  std::byte* data = nullptr;
  int64_t num_rows = 0;
  int64_t stride_bytes = 0;
};

/// out row i = table row ids[i]. Throws InputError naming the first id that is out of range; `out` is then
/// undefined.
void gather_rows(const RowsView& table, const IdSpan& ids, const RowsTarget& out, int threads);

/// out row places[i] = table row i; rows whose place is outside `out` are passed over. No place may come twice.
void scatter_rows(const RowsView& table, const IdSpan& places, const RowsTarget& out, int threads);

}  // namespace tiering
