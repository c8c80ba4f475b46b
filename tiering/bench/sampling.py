"""Neighbour sampling beside DGL's NeighborSampler, on the same graph, seeds and fanouts, in one process."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np

from tiering import native
from tiering.bench.harness import Comparison, compare
from tiering.errors import InputError
from tiering.sampling import NeighborSampler, Relation

RELATION: Relation = ("node", "to", "node")


class RmatGraph:
    """A homogeneous power-law graph in memory (R-MAT), with the methods that the sampler asks for."""

    def __init__(self, scale: int, num_edges: int, seed: int, threads: int) -> None:
        src, dst = native.rmat_edges(scale, num_edges, seed=seed, threads=threads)
        count = 1 << scale
        self.node_types = ["node"]
        self.relations = [RELATION]
        self._count = count
        self._csc = native.coo_to_csc(src, dst, count, count, threads, want_positions=False)[:2]

    def num_nodes(self, node_type: str = "node") -> int:
        """2^scale."""
        return self._count

    def csc(self, relation: Relation = RELATION) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """``(indptr, indices)``."""
        return self._csc


def sampling(
    *,
    scale: int = 22,
    num_edges: int = 12 << 22,
    fanouts: Sequence[int] = (10, 10, 10),
    batch_size: int = 1000,
    batches: int = 40,
    threads: int = 2,
    repeats: int = 5,
    seed: int = 0,
) -> Comparison:
    """Sample `batches` batches with ours and with DGL in turn; the rate is sampled edges per second.

    Ours returns everything a training step needs (nodes, edges in local ids by hop) and samples whole batches side by
    side on `threads` threads. DGL's sampler builds its blocks and is free to choose: its threads work on one batch
    (``torch.set_num_threads``), and batches side by side are tried too (``dgl, batches side by side``).

    Parameters
    ----------
    scale, num_edges
        R-MAT graph with 2^scale nodes; by default 4.2 M nodes and 50 M edges.
    fanouts
        By hop from the seeds; DGL gets them reversed.
    batches
        Batches per repeat.
    threads
        Threads of each side.
    """
    if batches * batch_size > 1 << scale:
        raise InputError(f"batches: expected at most {(1 << scale) // batch_size} of {batch_size}, found {batches}")
    graph = RmatGraph(scale, num_edges, seed, threads)
    nodes = np.random.default_rng(seed).permutation(graph.num_nodes())[: batches * batch_size]
    seeds = nodes.astype(np.int64).reshape(batches, batch_size)
    sampler = NeighborSampler(graph, list(fanouts), seed=seed)

    def one(b: int) -> int:
        return sampler.sample(seeds[b], batch=b).num_edges

    with ThreadPoolExecutor(threads) as pool:

        def ours() -> int:
            return sum(pool.map(one, range(batches)))

        edges = ours()
        parameters = {
            "nodes": graph.num_nodes(),
            "edges": num_edges,
            "fanouts": list(fanouts),
            "batch_size": batch_size,
            "batches": batches,
            "threads": threads,
        }
        with _dgl_sides(graph, seeds, fanouts, threads) as peers:
            return compare("sampling", ours, peers, amount=edges, unit="edges", repeats=repeats, parameters=parameters)


@contextmanager
def _dgl_sides(
    graph: RmatGraph, seeds: np.ndarray[Any, Any], fanouts: Sequence[int], threads: int
) -> Iterator[dict[str, Callable[[], object] | str]]:
    """DGL's sampler with all threads in one batch, and with batches side by side."""
    os.environ.setdefault("DGLBACKEND", "pytorch")
    try:
        torch, dgl = importlib.import_module("torch"), importlib.import_module("dgl")
    except ImportError as error:
        yield {"dgl": f"not installed ({error})"}
        return
    indptr, indices = graph.csc()
    arrays = (torch.from_numpy(indptr), torch.from_numpy(indices.astype(np.int64)), torch.empty(0, dtype=torch.int64))
    peer = dgl.graph(("csc", arrays))
    samplers = [dgl.dataloading.NeighborSampler(list(fanouts)[::-1]) for _ in range(threads)]
    lists = [torch.from_numpy(batch) for batch in seeds]
    for each in samplers:
        each.sample_blocks(peer, lists[0])  # makes its tables on first use
    before = torch.get_num_threads()

    def in_turn() -> None:
        torch.set_num_threads(threads)
        for batch in lists:
            samplers[0].sample_blocks(peer, batch)

    def share(t: int) -> None:
        torch.set_num_threads(1)
        for batch in lists[t::threads]:
            samplers[t].sample_blocks(peer, batch)

    with ThreadPoolExecutor(threads) as pool:

        def side_by_side() -> None:
            list(pool.map(share, range(threads)))

        name = f"dgl {dgl.__version__} NeighborSampler"
        try:
            yield {name: in_turn, f"{name}, batches side by side": side_by_side}
        finally:
            torch.set_num_threads(before)
