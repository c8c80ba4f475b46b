"""The native kernels against their peers, on one R-MAT graph, results compared before anything is timed.

scipy merges duplicate edges when it builds a matrix and we keep them, so results are compared on what merging does
not change: the set of neighbors, or sums over whole columns. For sweeps scipy gets its matrix ready made, rows being
sources (CSR), which is the form its product likes best; ours start from the CSC alone, so whatever they build for
themselves is inside their time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse

from benchmarks import csc_edges
from benchmarks.harness import Comparison, Csc, FloatArray, Ids, Sizes, Work, compare, expect
from benchmarks.relabel import relabel_graph
from benchmarks.workers import Worker, library
from tiering import native

DAMPING, SWEEPS = 0.85, 5
FANOUTS, BATCH_SIZE, TRAIN_SHARE = (10, 10, 10), 1000, 0.01


@contextmanager
def copier(megabytes: int, threads: int) -> Iterator[tuple[Callable[[int], None], int]]:
    """Open a function that copies memory until so many bytes were read and written, and the bytes of a whole copy."""
    source = np.ones(max(megabytes * 1_000_000 // 8, threads))
    target, whole = np.empty_like(source), 2 * source.nbytes
    cuts = np.linspace(0, source.size, threads + 1).astype(int)
    with ThreadPoolExecutor(threads) as pool:

        def part(t: int, share: float) -> None:
            first, last = cuts[t], cuts[t] + int(share * (cuts[t + 1] - cuts[t]))
            np.copyto(target[first:last], source[first:last])

        def copy(nbytes: int) -> None:
            rounds, rest = divmod(nbytes, whole)
            for share in [1.0] * rounds + [rest / whole]:
                list(pool.map(part, range(threads), [share] * threads))

        copy(whole)  # first touch
        yield copy, whole


def copy(sizes: Sizes) -> Comparison:
    """Measure memory of about the size of the graph copied; the rate counts bytes read and bytes written."""
    megabytes = max(1, min(2048, sizes.edges // 25_000))
    with copier(megabytes, sizes.threads) as (work, nbytes):
        return compare(
            "copy", lambda: work(nbytes), {}, amount=nbytes, unit="B", repeats=sizes.repeats,
            parameters={"megabytes": megabytes, "threads": sizes.threads},
        )  # fmt: skip


def coo_to_csc(sizes: Sizes) -> Comparison:
    """Measure edge list to CSC, against ``coo_matrix.tocsc`` of scipy (merges duplicates) and DGL (sorts)."""
    src, dst = sizes.edge_list()
    n = sizes.nodes

    def ours() -> Csc:
        return csc_edges.coo_to_csc(src, dst, n, n, sizes.threads)[:2]

    indptr, indices = ours()
    coo = sparse.coo_matrix((np.ones(sizes.edges, np.int8), (src, dst)), shape=(n, n))
    merged = coo.tocsc()
    expect("coo-to-csc", np.array_equal(np.diff(indptr), np.bincount(dst, minlength=n)), "column lengths")
    same = _distinct(indptr, indices) == _distinct(merged.indptr, merged.indices)
    expect("coo-to-csc", same, "neighbors, duplicates merged")
    arrays = {"nodes": np.array(n), "src": src, "dst": dst}
    with library("dgl", sizes.dgl_python or sys.executable, {}, arrays) as (dgl, folder):
        peers: dict[str, Work | str] = {"scipy coo.tocsc": coo.tocsc}
        peers["dgl formats('csc')"] = dgl.work("to csc") if isinstance(dgl, Worker) else dgl
        if isinstance(dgl, Worker):
            dgl.turn("save csc")
            theirs = [np.load(folder / f"{name}.npy") for name in ("indptr", "indices")]
            expect("coo-to-csc", np.array_equal(theirs[0], indptr), "DGL's column lengths")
            expect("coo-to-csc", _distinct(*theirs) == _distinct(indptr, indices), "DGL's neighbors")
        return sizes.compare("coo-to-csc", ours, peers, sizes.edges)


def relabel(sizes: Sizes) -> Comparison:
    """Compare relabeling in order of out-degree: ours, scipy's ``A[p][:, p]`` and ``dgl.reorder_graph``.

    Ours is what `tiering reorder` runs where everything fits in memory.

    Ids are scrambled first: as R-MAT draws them they are nearly in this order already. scipy's matrix carries float32
    values, as a weighted adjacency does; with int8 values it moves a quarter less and takes about two thirds as long.
    DGL needs 15 to 20 s a turn at the default size: it takes part where `sizes.slow_peers` says so.
    """
    sizes = replace(sizes, scramble=True)
    indptr, indices = sizes.csc()
    n = sizes.nodes
    scores = native.out_degrees(indices, n, sizes.threads).astype(np.float64)
    new_to_old = native.sort_by_score(scores, sizes.threads)
    old_to_new = np.empty_like(new_to_old)
    old_to_new[new_to_old] = np.arange(n, dtype=new_to_old.dtype)

    def ours() -> Csc:
        return relabel_graph(indptr, indices, old_to_new, old_to_new, sizes.threads)

    matrix = sparse.csc_matrix((np.ones(indices.size, np.float32), indices, indptr), shape=(n, n))
    theirs = matrix[new_to_old][:, new_to_old]
    new_indptr, new_indices = ours()
    expect("relabel", np.array_equal(new_indptr, theirs.indptr), "column lengths")
    same = np.array_equal(_column_sums(new_indptr, new_indices), _column_sums(theirs.indptr, theirs.indices))
    expect("relabel", same, "sums of the ids in each column")
    peers: dict[str, Work | str] = {"scipy A[p][:, p]": lambda: matrix[new_to_old][:, new_to_old]}
    if not sizes.slow_peers:
        return sizes.compare("relabel", ours, peers, sizes.edges)
    dst = np.repeat(np.arange(n, dtype=indices.dtype), np.diff(indptr))
    arrays = {"nodes": np.array(n), "src": indices, "dst": dst, "new_to_old": new_to_old}
    with library("dgl", sizes.dgl_python or sys.executable, {}, arrays) as (dgl, _):
        peers["dgl.reorder_graph"] = dgl.work("reorder") if isinstance(dgl, Worker) else dgl
        return sizes.compare("relabel", ours, peers, sizes.edges)


def wrpr(sizes: Sizes) -> Comparison:
    """Measure five sweeps of reverse PageRank from the CSC alone, against scipy's five products with a ready CSR."""
    n = sizes.nodes
    indptr, indices = sizes.csc()
    start, teleport = np.full(n, 1.0 / n), np.full(n, (1 - DAMPING) / n)

    def ours() -> FloatArray:
        relations, threads = [(0, 0, indptr, indices)], sizes.threads
        return native.reverse_pagerank(relations, [n], [start], [teleport], DAMPING, SWEEPS, 0.0, threads)[0][0]

    def products(matrix: Any) -> FloatArray:
        scores = start
        for _ in range(SWEEPS):
            scores = matrix @ scores
            scores += teleport
        return scores

    shares = DAMPING / np.maximum(np.diff(indptr), 1)
    return _sweeps("wrpr", sizes, (indptr, indices), shares, SWEEPS, ours, products)


def vip(sizes: Sizes) -> Comparison:
    """Measure vertex inclusion probability over three hops, against the same recursion in numpy and scipy's products.

    One of a hundred nodes trains; batches of 1000, fanouts 10,10,10, frontier ``all``.
    """
    n = sizes.nodes
    indptr, indices = sizes.csc()
    train = np.random.default_rng(sizes.seed).permutation(n)[: max(1, int(TRAIN_SHARE * n))]
    p0 = np.zeros(n)
    p0[train] = min(1.0, BATCH_SIZE / train.size)
    degrees = np.diff(indptr)

    def ours() -> FloatArray:
        relations, hops = [(0, 0, indptr, indices)], [[fanout] for fanout in FANOUTS]
        return native.inclusion_probability(relations, [n], [p0], hops, "all", False, sizes.threads)[0][0]

    def products(matrix: Any) -> FloatArray:
        reached, new = p0, p0
        left, picked = np.zeros(n), np.zeros(n)
        for fanout in FANOUTS:
            share = np.where(degrees == 0, 0, np.minimum(1.0, fanout / np.maximum(degrees, 1)))
            active = left + new
            picked = picked + active * share
            left = active * (1 - share)
            chance = -np.expm1(matrix @ np.log1p(-np.minimum(picked, 1 - 1e-15)))
            after = np.maximum(p0 + (1 - p0) * chance, reached)
            reached, new = after, after - reached
        return reached

    return _sweeps("vip", sizes, (indptr, indices), np.ones(n), len(FANOUTS), ours, products)


def _sweeps(
    name: str,
    sizes: Sizes,
    csc: Csc,
    column_values: FloatArray,
    sweeps: int,
    ours: Work,
    products: Callable[[Any], Any],
) -> Comparison:
    """Measure ours, scipy's `products` with the matrix of `column_values`, and a copy of as many bytes."""
    indptr, indices = csc
    n = indptr.size - 1
    targets: Any = np.repeat(np.arange(n, dtype=indices.dtype), np.diff(indptr))
    row_starts, columns, _ = csc_edges.coo_to_csc(targets, indices, n, n, sizes.threads)
    matrix = sparse.csr_matrix((column_values[columns], columns, row_starts), shape=(n, n))
    expect(name, np.allclose(ours(), products(matrix), rtol=1e-9, atol=0), "scores")
    nbytes = sweeps * (indices.nbytes + n * 24)  # indices once; indptr, a vector read and a vector written
    with copier(max(1, min(256, nbytes // 2_000_000)), sizes.threads) as (work, _):
        peers = {
            "scipy csr @ x, matrix ready": lambda: products(matrix),
            "memory copied, bytes of the sweeps": lambda: work(nbytes),
        }
        return sizes.compare(name, ours, peers, sweeps * indices.size, sweeps=sweeps, sweep_bytes=nbytes)


def _column_sums(indptr: Ids, indices: Ids) -> Ids:
    """Sum of the ids in each column."""
    running = np.concatenate(([0], np.cumsum(indices, dtype=np.int64)))
    sums: Ids = np.diff(running[indptr])
    return sums


def _distinct(indptr: Ids, indices: Ids) -> tuple[int, int]:
    """Return number and checksum of the distinct (column, id) pairs."""
    columns = np.repeat(np.arange(indptr.size - 1, dtype=np.int64), np.diff(indptr))
    columns <<= 32
    columns |= indices
    columns.sort()  # many times faster than numpy.unique, which hashes
    pairs = columns[np.append(True, columns[1:] != columns[:-1])] if columns.size else columns
    return pairs.size, int(np.bitwise_xor.reduce(pairs * 0x9E3779B1)) if pairs.size else 0
