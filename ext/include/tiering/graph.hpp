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
