// Kernels on adjacency: edge list to CSC, transposition, checks, degrees, a synthetic graph for benchmarks.
#pragma once

#include <cstdint>
#include <span>
#include <tiering/buffer.hpp>
#include <tiering/views.hpp>

namespace tiering {

/// Compressed adjacency that owns its arrays. `positions` is empty unless asked for.
struct CscArrays {
  Buffer<int64_t> indptr;     ///< number of lists + 1
  IdBuffer indices;           ///< ids, list after list
  Buffer<int64_t> positions;  ///< where in the input each entry stood
};

/// Edges (src[k], dst[k]) to CSC: list v holds the sources of v's edges in input order, duplicates included.
/// Throws InputError naming the first edge whose id is out of range.
CscArrays coo_to_csc(const IdView& src, const IdView& dst, int64_t num_src, int64_t num_dst, int threads,
                     bool want_positions);

/// A part of the entries of a CSC that is being made from chunks of an edge list, in order.
struct EdgeWindow {
  int64_t first, end;          ///< entries
  int64_t first_column;        ///< of the columns that have entries in the window
  std::span<int64_t> cursors;  ///< for each of them, where its next edge goes; at first its indptr
  void* out;                   ///< the entries [first, end)
};

/// counts[v] += number of edges to v. Throws InputError naming the first edge whose destination is out of range;
/// edges are numbered from first_edge on.
void count_destinations(const IdView& dst, int64_t first_edge, std::span<int64_t> counts, int threads);

/// Puts the sources of a chunk of edges at their places in the window, in 64 bits where num_src needs them. The
/// destinations must have been counted; throws InputError naming an edge of the window whose source is not in
/// [0, num_src).
void place_sources(const IdView& src, const IdView& dst, int64_t first_edge, int64_t num_src,
                   const EdgeWindow& window, int threads);

/// Puts values that run along the edges, item_bytes each, at their places in the window.
void place_edge_data(const void* values, int64_t item_bytes, int64_t num_values, const IdView& dst,
                     const EdgeWindow& window, int threads);

/// CSC to CSR (or back): list u of the result holds the columns that contain u, ascending, duplicates
/// included.
CscArrays transpose(const CscView& csc, int64_t num_rows, int threads, bool want_positions);

/// Throws InputError saying where, unless indptr starts at 0, never falls and ends at the number of indices.
void check_indptr(const CscView& csc, int threads);

/// check_indptr, and every index in [0, num_src).
void check_csc(const CscView& csc, int64_t num_src, int threads);

/// degrees[u] = how often u stands in `indices`. Throws InputError if an index is outside [0, num_src).
Buffer<int64_t> out_degrees(const IdSpan& indices, int64_t num_src, int threads);

/// A power-law graph of 2^scale nodes: fills src and dst, the same for any number of threads. Low ids have
/// high degrees unless `scramble` asks for a bijection over the ids.
void rmat_edges(int scale, uint64_t seed, bool scramble, std::span<int32_t> src, std::span<int32_t> dst,
                int threads);

}  // namespace tiering
