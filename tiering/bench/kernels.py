"""The native kernels beside their peers, on one R-MAT graph, results compared before anything is timed.

scipy merges duplicate edges when it builds a matrix and we keep them, so results are compared on what merging does
not change: the set of neighbours, or sums over whole columns.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiering import native
from tiering.bench.harness import Comparison, compare
from tiering.errors import InternalError

Ids = NDArray[np.int32] | NDArray[np.int64]
Work = Callable[[], Any]

DAMPING = 0.85
SWEEPS = 5


@dataclass(frozen=True)
class Setting:
    """What every kernel benchmark takes."""

    scale: int = 22
    """The graph has 2**scale nodes."""
    edges: int = 50_331_648
    """Number of edges, duplicates included."""
    repeats: int = 5
    """Timed runs of each side."""
    threads: int = 2
    """Threads of ours; peers use what they use."""
    seed: int = 1
    """Seed of the graph."""
    scramble: bool = False
    """Whether ids tell nothing about degrees (otherwise low ids have high degrees, as R-MAT draws them)."""

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return 1 << self.scale

    def parameters(self) -> dict[str, Any]:
        """For the report."""
        return {
            "scale": self.scale,
            "nodes": self.nodes,
            "edges": self.edges,
            "threads": self.threads,
            "scramble": self.scramble,
        }

    def edge_list(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Sources and destinations."""
        return native.rmat_edges(self.scale, self.edges, self.seed, self.threads, self.scramble)

    def csc(self) -> tuple[NDArray[np.int64], Ids]:
        """The graph as CSC."""
        src, dst = self.edge_list()
        indptr, indices, _ = native.coo_to_csc(src, dst, self.nodes, self.nodes, self.threads)
        return indptr, indices

    def compare(self, name: str, ours: Work, peers: dict[str, Work | str], amount: float) -> Comparison:
        """Time both sides; `amount` is in edges."""
        return compare(
            name, ours, peers, amount=amount, unit="edges", repeats=self.repeats, parameters=self.parameters()
        )


def bench_coo_to_csc(setting: Setting) -> Comparison:
    """Edge list to CSC, against ``scipy.sparse.coo_matrix.tocsc`` (which merges duplicates)."""
    src, dst = setting.edge_list()
    n = setting.nodes

    def ours() -> tuple[NDArray[np.int64], Ids]:
        indptr, indices, _ = native.coo_to_csc(src, dst, n, n, setting.threads)
        return indptr, indices

    peers: dict[str, Work | str] = {"scipy coo.tocsc": "not installed"}
    if (sparse := _scipy_sparse()) is not None:
        coo = sparse.coo_matrix((np.ones(setting.edges, np.int8), (src, dst)), shape=(n, n))
        peers = {"scipy coo.tocsc": coo.tocsc}
        merged = coo.tocsc()
        indptr, indices = ours()
        _expect("coo_to_csc", np.array_equal(np.diff(indptr), np.bincount(dst, minlength=n)), "column lengths")
        same = _distinct(indptr, indices) == _distinct(merged.indptr, merged.indices)
        _expect("coo_to_csc", same, "neighbours, duplicates merged")
    return setting.compare("coo_to_csc", ours, peers, setting.edges)


def bench_wrpr(setting: Setting) -> Comparison:
    """Five sweeps of reverse PageRank from the CSC alone, against scipy's products on its ready CSC matrix."""
    n = setting.nodes
    indptr, indices = setting.csc()
    start = np.full(n, 1.0 / n)
    teleport = np.full(n, (1 - DAMPING) / n)

    def ours() -> NDArray[np.float64]:
        relation = (0, 0, indptr, indices)
        scores, _, _ = native.reverse_pagerank(
            [relation], [n], [start], [teleport], DAMPING, SWEEPS, 0.0, setting.threads
        )
        return scores[0]

    peers: dict[str, Work | str] = {"scipy csc @ x": "not installed"}
    if (sparse := _scipy_sparse()) is not None:
        matrix = sparse.csc_matrix((np.ones(indices.size), indices, indptr), shape=(n, n))
        shares = 1.0 / np.maximum(np.diff(indptr), 1)

        def theirs() -> NDArray[np.float64]:
            scores = start
            for _ in range(SWEEPS):
                scores = teleport + DAMPING * (matrix @ (scores * shares))
            return scores

        peers = {"scipy csc @ x": theirs}
        _expect("wrpr", np.allclose(ours(), theirs(), rtol=1e-10, atol=0), "scores")
    return setting.compare("wrpr", ours, peers, SWEEPS * setting.edges)


def bench_relabel(setting: Setting, *, dgl: bool = True) -> Comparison:
    """The graph in order of out-degree: ours against scipy's ``A[p][:, p]`` and ``dgl.reorder_graph``.

    Ids are scrambled first: as R-MAT draws them they are nearly in this order already. scipy's matrix carries float32
    values, as a weighted adjacency does; with int8 values it moves a quarter less and takes about two thirds as long.

    Parameters
    ----------
    dgl
        Whether DGL takes part: it needs 15 to 20 s a run at the default size.
    """
    setting = replace(setting, scramble=True)
    indptr, indices = setting.csc()
    n = setting.nodes
    scores = native.out_degrees(indices, n, setting.threads).astype(np.float64)
    new_to_old = native.sort_by_score(scores, setting.threads)
    old_to_new = native.invert_permutation(new_to_old, setting.threads)

    def ours() -> tuple[NDArray[np.int64], Ids]:
        new_indptr, new_indices, _ = native.relabel_csc(indptr, indices, new_to_old, old_to_new, setting.threads)
        return new_indptr, new_indices

    peers: dict[str, Work | str] = {"scipy A[p][:, p]": "not installed"}
    if (sparse := _scipy_sparse()) is not None:
        matrix = sparse.csc_matrix((np.ones(indices.size, np.float32), indices, indptr), shape=(n, n))
        peers = {"scipy A[p][:, p]": lambda: matrix[new_to_old][:, new_to_old]}
        theirs = matrix[new_to_old][:, new_to_old]
        new_indptr, new_indices = ours()
        _expect("relabel", np.array_equal(new_indptr, theirs.indptr), "column lengths")
        same = np.array_equal(_column_sums(new_indptr, new_indices), _column_sums(theirs.indptr, theirs.indices))
        _expect("relabel", same, "sums of the ids in each column")
    if dgl:
        peers["dgl.reorder_graph"] = _dgl_reorder(indptr, indices, new_to_old)
    return setting.compare("relabel", ours, peers, setting.edges)


KERNELS: dict[str, Callable[[Setting], Comparison]] = {
    "coo_to_csc": bench_coo_to_csc,
    "wrpr": bench_wrpr,
    "relabel": bench_relabel,
}
"""Benchmarks by name."""


def _dgl_reorder(indptr: NDArray[np.int64], indices: Ids, new_to_old: Ids) -> Work | str:
    os.environ.setdefault("DGLBACKEND", "pytorch")
    try:
        import dgl
    except Exception as error:  # DGL fails in many ways beside ImportError
        return f"not installed or not loadable ({type(error).__name__})"
    n = indptr.size - 1
    destinations = np.repeat(np.arange(n, dtype=indices.dtype), np.diff(indptr))
    graph = dgl.graph((indices, destinations), num_nodes=n)

    def run() -> Any:
        return dgl.reorder_graph(
            graph,
            node_permute_algo="custom",
            edge_permute_algo="dst",
            store_ids=False,
            permute_config={"nodes_perm": new_to_old},
        )

    return run


def _scipy_sparse() -> Any:
    try:
        from scipy import sparse
    except ImportError:
        return None
    return sparse


def _column_sums(indptr: NDArray[np.int64], indices: Ids) -> NDArray[np.int64]:
    """Sum of the ids in each column."""
    running = np.concatenate(([0], np.cumsum(indices, dtype=np.int64)))
    return np.diff(running[indptr])


def _distinct(indptr: NDArray[np.int64], indices: Ids) -> tuple[int, int]:
    """Number and checksum of the distinct (column, id) pairs."""
    columns = np.repeat(np.arange(indptr.size - 1, dtype=np.int64), np.diff(indptr))
    pairs = np.unique(columns << 32 | indices.astype(np.int64))
    return pairs.size, int(np.bitwise_xor.reduce(pairs * 0x9E3779B1)) if pairs.size else 0


def _expect(kernel: str, same: bool, what: str) -> None:
    if not same:
        raise InternalError(f"benchmark {kernel}: our result and the peer's differ in their {what}")
