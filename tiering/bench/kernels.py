"""The native kernels beside their peers, on one R-MAT graph, results compared before anything is timed.

scipy merges duplicate edges when it builds a matrix and we keep them, so results are compared on what merging does
not change: the set of neighbours, or sums over whole columns.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiering import native
from tiering.bench.harness import Comparison
from tiering.bench.peers import expect, scipy_sparse
from tiering.bench.sizes import Ids, Sizes, Work


def bench_coo_to_csc(sizes: Sizes) -> Comparison:
    """Edge list to CSC, against ``scipy.sparse.coo_matrix.tocsc`` (which merges duplicates) and DGL (which sorts)."""
    src, dst = sizes.edge_list()
    n = sizes.nodes

    def ours() -> tuple[NDArray[np.int64], Ids]:
        indptr, indices, _ = native.coo_to_csc(src, dst, n, n, sizes.threads)
        return indptr, indices

    peers: dict[str, Work | str] = {"scipy coo.tocsc": "not installed"}
    if (sparse := scipy_sparse()) is not None:
        coo = sparse.coo_matrix((np.ones(sizes.edges, np.int8), (src, dst)), shape=(n, n))
        peers = {"scipy coo.tocsc": coo.tocsc}
        merged = coo.tocsc()
        indptr, indices = ours()
        expect("coo_to_csc", np.array_equal(np.diff(indptr), np.bincount(dst, minlength=n)), "column lengths")
        same = _distinct(indptr, indices) == _distinct(merged.indptr, merged.indices)
        expect("coo_to_csc", same, "neighbours, duplicates merged")
    peers["dgl formats('csc')"] = _dgl_csc(src, dst, n)
    return sizes.compare("coo_to_csc", ours, peers, sizes.edges)


def _dgl_csc(src: Ids, dst: Ids, n: int) -> Work | str:
    os.environ.setdefault("DGLBACKEND", "pytorch")
    try:
        import dgl
    except Exception as error:  # DGL fails in many ways beside ImportError
        return f"not installed or not loadable ({type(error).__name__})"
    graph = dgl.graph((src, dst), num_nodes=n)  # COO; what is converted is kept by the new graph alone
    found = graph.formats("csc").adj_tensors("csc")
    indptr, indices, _ = native.coo_to_csc(src, dst, n, n, 1)
    expect("coo_to_csc", np.array_equal(found[0].numpy(), indptr), "DGL's column lengths")
    expect(
        "coo_to_csc", _distinct(found[0].numpy(), found[1].numpy()) == _distinct(indptr, indices), "DGL's neighbours"
    )
    return lambda: graph.formats("csc")


def bench_relabel(sizes: Sizes) -> Comparison:
    """The graph in order of out-degree: ours against scipy's ``A[p][:, p]`` and ``dgl.reorder_graph``.

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

    def ours() -> tuple[NDArray[np.int64], Ids]:
        return native.relabel_csc(indptr, indices, old_to_new, old_to_new, sizes.threads)

    peers: dict[str, Work | str] = {"scipy A[p][:, p]": "not installed"}
    if (sparse := scipy_sparse()) is not None:
        matrix = sparse.csc_matrix((np.ones(indices.size, np.float32), indices, indptr), shape=(n, n))
        peers = {"scipy A[p][:, p]": lambda: matrix[new_to_old][:, new_to_old]}
        theirs = matrix[new_to_old][:, new_to_old]
        new_indptr, new_indices = ours()
        expect("relabel", np.array_equal(new_indptr, theirs.indptr), "column lengths")
        same = np.array_equal(_column_sums(new_indptr, new_indices), _column_sums(theirs.indptr, theirs.indices))
        expect("relabel", same, "sums of the ids in each column")
    if sizes.slow_peers:
        peers["dgl.reorder_graph"] = _dgl_reorder(indptr, indices, new_to_old)
    return sizes.compare("relabel", ours, peers, sizes.edges)


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


def _column_sums(indptr: NDArray[np.int64], indices: Ids) -> NDArray[np.int64]:
    """Sum of the ids in each column."""
    running = np.concatenate(([0], np.cumsum(indices, dtype=np.int64)))
    return np.diff(running[indptr])


def _distinct(indptr: NDArray[np.int64], indices: Ids) -> tuple[int, int]:
    """Number and checksum of the distinct (column, id) pairs."""
    columns = np.repeat(np.arange(indptr.size - 1, dtype=np.int64), np.diff(indptr))
    columns <<= 32
    columns |= indices
    columns.sort()  # many times faster than numpy.unique, which hashes
    pairs = columns[np.append(True, columns[1:] != columns[:-1])] if columns.size else columns
    return pairs.size, int(np.bitwise_xor.reduce(pairs * 0x9E3779B1)) if pairs.size else 0
