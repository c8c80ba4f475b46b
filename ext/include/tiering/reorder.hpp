// Kernels that order nodes and move data into that order.
#pragma once

#include <tiering/graph.hpp>

namespace tiering {

/// indptr of the graph under new ids. Throws InputError if the old one does not begin at 0 or falls, or if
/// dst_old_to_new is no permutation of the columns.
Buffer<int64_t> relabel_indptr(std::span<const int64_t> indptr, const IdSpan& dst_old_to_new, int threads);

/// A chunk of the old entries, and where their columns go.
struct OldEntries {
  std::span<const int64_t> indptr;  ///< of all columns
  IdSpan dst_old_to_new;            ///< new place of each column
  int64_t first, end;               ///< the entries of the chunk
};

/// A part of the entries of the relabeled graph, which is made while the old entries pass in chunks.
struct RelabelWindow {
  int64_t first, end;               ///< entries
  int64_t first_column;             ///< of the new columns that have entries in the window
  std::span<const int64_t> starts;  ///< the new indptr of those columns
  void* out;                        ///< the entries [first, end)
};

/// New ids of the sources, or of those from `first` on.
struct SourceMap {
  IdSpan old_to_new;
  int64_t first;  ///< source of the first entry
  int64_t count;  ///< all sources
};

/// Puts `indices`, the entries of the chunk, at their places in the window, under their old ids, in 64 bits where the
/// number of sources needs them. Throws InputError naming the first entry of the chunk that is no source; the window is
/// then undefined.
void place_indices(const IdSpan& indices, int64_t num_src, const OldEntries& chunk, const RelabelWindow& window,
                   int threads);

/// Puts values that run along the edges of the chunk, item_bytes each, at their places in the window.
void place_values(const void* values, int64_t item_bytes, const OldEntries& chunk, const RelabelWindow& window,
                  int threads);

/// Gives the entries of a window, complete under old ids, their new ones. Parts of the source map come one after the
/// other, the last part last: until then what has its new id is the complement of it.
void rename_sources(void* entries, int64_t count, const SourceMap& sources, int threads);

/// Orders nodes by descending score, ties by ascending id, from chunks of the scores: all of them counted, then all of
/// them placed, front to back. Throws InputError naming a NaN.
class ScoreSorter {
 public:
  static std::unique_ptr<ScoreSorter> make(int64_t size, int threads);
  virtual ~ScoreSorter() { give_free_memory_back(); }  // of the counts: malloc would keep it
  virtual void count(std::span<const double> scores) = 0;
  virtual void place(std::span<const double> scores) = 0;
  /// Old ids by rank; once.
  virtual IdBuffer finish() = 0;
};

/// Old ids by descending score, ties by ascending id, of scores in memory. Throws InputError naming a NaN.
IdBuffer sort_by_score(std::span<const double> scores, int threads);

/// Keys from which on positions take 64 bits.
inline constexpr int64_t kWidePositions = int64_t{1} << 32;

struct KeyParts {
  std::variant<Buffer<uint32_t>, Buffer<int64_t>> order;  ///< positions of the keys by part, in each part ascending
  Buffer<int64_t> counts;                                 ///< keys of each part
};

/// Part j has the keys in [bounds[j], bounds[j + 1]). Throws InputError for bounds that fall, and naming the first key
/// in none of the ranges. `wide`: number of keys from which on positions take 64 bits. See reorder/key_parts.cpp.
KeyParts partition_keys(const IdSpan& keys, std::span<const int64_t> bounds, int threads,
                        int64_t wide = kWidePositions);

/// A table of rows of equal length, contiguous from row to row.
struct RowsView {
  const std::byte* data = nullptr;
  int64_t num_rows = 0;
  int64_t row_bytes = 0;
};

/// Where gathered rows of `row_bytes` go: row i at data + i * stride_bytes.
struct RowsTarget {
  std::byte* data = nullptr;
  int64_t num_rows = 0;
  int64_t stride_bytes = 0;
  int64_t row_bytes = 0;
};

/// out row i = table row ids[i]. Throws InputError naming the first id that is out of range; `out` is then undefined.
void gather_rows(const RowsView& table, const IdSpan& ids, const RowsTarget& out, int threads);

/// out row places[i] - first = table row i; rows whose place is outside `out` are passed over. No place may come twice.
void scatter_rows(const RowsView& table, const IdSpan& places, int64_t first, const RowsTarget& out, int threads);

/// The type of the entries of rows; bfloat16 comes as its bits.
enum class NumberKind { kFloat16, kBFloat16, kFloat32, kFloat64 };

/// A table of rows of numbers, without gaps.
struct NumberRows {
  const void* data = nullptr;
  int64_t num_rows = 0;
  int64_t dim = 0;
  NumberKind kind = NumberKind::kFloat32;
};

/// Sums of rows by node, without gaps, and how many rows are in each.
struct RowSums {
  float* total = nullptr;
  int64_t* degree = nullptr;
  int64_t num_nodes = 0;
};

/// total[nodes[e]] += row neighbors[e], in float32, and degree[nodes[e]] += 1, for every edge e; a node's rows are added
/// in the order of its edges. Nodes come in ascending order. Throws InputError naming an edge whose node is out of order,
/// or whose node or neighbor is out of range, and has then added nothing.
void add_rows(const NumberRows& rows, const IdSpan& nodes, const IdSpan& neighbors, const RowSums& out, int threads);

}  // namespace tiering
