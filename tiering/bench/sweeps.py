"""Scores that sweep the edges, beside scipy's products and beside copying as many bytes.

scipy gets its matrix ready made, rows being sources (CSR), which is the form its product likes best; ours starts from
the CSC alone, so whatever it builds for itself is inside its time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.bench.copy import Copier
from tiering.bench.harness import Comparison
from tiering.bench.peers import expect, scipy_sparse
from tiering.bench.sizes import Csc, Sizes, Work

DAMPING = 0.85
SWEEPS = 5
FANOUTS = (10, 10, 10)
BATCH_SIZE, TRAIN_SHARE = 1000, 0.01

FloatArray = npt.NDArray[np.float64]


def sweep_bytes(nodes: int, edges: int, index_bytes: int) -> int:
    """Bytes that one sweep cannot do without: the indices once; indptr, a vector read and a vector written."""
    return edges * index_bytes + nodes * 24


def bench_wrpr(sizes: Sizes) -> Comparison:
    """Five sweeps of reverse PageRank from the CSC alone, against scipy's five products with a ready CSR."""
    n = sizes.nodes
    indptr, indices = sizes.csc()
    start = np.full(n, 1.0 / n)
    teleport = np.full(n, (1 - DAMPING) / n)

    def ours() -> FloatArray:
        relation = (0, 0, indptr, indices)
        scores, _, _ = native.reverse_pagerank(
            [relation], [n], [start], [teleport], DAMPING, SWEEPS, 0.0, sizes.threads
        )
        return scores[0]

    def products(matrix: Any) -> FloatArray:
        scores = start
        for _ in range(SWEEPS):
            scores = matrix @ scores
            scores += teleport
        return scores

    shares = DAMPING / np.maximum(np.diff(indptr), 1)
    return _compare("wrpr", sizes, (indptr, indices), shares, SWEEPS, ours, products)


def bench_vip(sizes: Sizes) -> Comparison:
    """Vertex inclusion probability over three hops, against the same recursion in numpy and scipy's products.

    One of a hundred nodes trains; batches of 1000, fanouts 10,10,10, frontier ``all``.
    """
    n = sizes.nodes
    indptr, indices = sizes.csc()
    train = np.random.default_rng(sizes.seed).permutation(n)[: max(1, int(TRAIN_SHARE * n))]
    p0 = np.zeros(n)
    p0[train] = min(1.0, BATCH_SIZE / train.size)
    degrees = np.diff(indptr)

    def ours() -> FloatArray:
        relation = (0, 0, indptr, indices)
        hops = [[fanout] for fanout in FANOUTS]
        found, _ = native.inclusion_probability([relation], [n], [p0], hops, "all", False, sizes.threads)
        return found[0]

    def products(matrix: Any) -> FloatArray:
        found, new = p0, p0
        left, picked = np.zeros(n), np.zeros(n)
        for fanout in FANOUTS:
            share = np.minimum(1.0, fanout / np.maximum(degrees, 1))
            share[degrees == 0] = 0
            active = left + new
            picked = picked + active * share
            left = active * (1 - share)
            reached = -np.expm1(matrix @ np.log1p(-np.minimum(picked, 1 - 1e-15)))
            after = np.maximum(p0 + (1 - p0) * reached, found)
            found, new = after, after - found
        return found

    return _compare("vip", sizes, (indptr, indices), np.ones(n), len(FANOUTS), ours, products)


def _compare(
    name: str,
    sizes: Sizes,
    csc: Csc,
    column_values: FloatArray,
    sweeps: int,
    ours: Callable[[], FloatArray],
    products: Callable[[Any], FloatArray],
) -> Comparison:
    """Ours, scipy's `products` with the matrix of `column_values`, and a copy of the bytes of `sweeps` sweeps."""
    indptr, indices = csc
    peers: dict[str, Work | str] = {"scipy csr @ x, matrix ready": "not installed"}
    if (matrix := _ready_csr(csc, column_values, sizes.threads)) is not None:
        expect(name, np.allclose(ours(), products(matrix), rtol=1e-9, atol=0), "scores")
        peers = {"scipy csr @ x, matrix ready": lambda: products(matrix)}
    nbytes = sweeps * sweep_bytes(indptr.size - 1, indices.size, indices.itemsize)
    with _copying(nbytes, sizes.threads) as copying:
        peers["memory copied, bytes of the sweeps"] = copying
        return sizes.compare(name, ours, peers, sweeps * indices.size, sweeps=sweeps, sweep_bytes=nbytes)


def _ready_csr(csc: Csc, column_values: FloatArray, threads: int) -> Any:
    """scipy's CSR of the adjacency (rows = sources), each edge valued by its column; ``None`` without scipy."""
    if (sparse := scipy_sparse()) is None:
        return None
    indptr, indices = csc
    n = indptr.size - 1
    row_starts, columns, _ = native.transpose(indptr, indices, n, threads)
    return sparse.csr_matrix((column_values[columns], columns, row_starts), shape=(n, n))


@contextmanager
def _copying(nbytes: int, threads: int) -> Iterator[Callable[[], None]]:
    """A function that reads and writes `nbytes` in all, 256 MB at a time (less where there is less to copy)."""
    with Copier(max(1, min(256, nbytes // 2_000_000)), threads) as copier:
        yield lambda: copier.copy(nbytes)
