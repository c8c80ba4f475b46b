"""Neighbor sampling against DGL's and GraphBolt's: same graph, seeds, fanouts and threads, in turn in one run.

Before anything is timed, every side samples all batches once and the numbers of edges are compared: a sampler that
returns fewer edges is not faster.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from math import sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.harness import Comparison, Csc, Sizes, Work, expect
from benchmarks.workers import library
from tiering.sampling import Relation, SamplingOptions, make_sampler

FANOUTS = (10, 10, 10)
PACKAGES = '"dgl==2.1.0" "torch==2.2.1" "numpy<2" "torchdata<0.8" "setuptools<70" pandas pydantic pyyaml packaging'
HOW_TO = f"not measured: pip install {PACKAGES} in an environment of its own, then --graphbolt-python its interpreter"
_KNOWN = {"dgl": ("uniform", "replacement", "weighted", "pinsage"), "graphbolt": ("uniform", "replacement", "weighted")}


@dataclass(frozen=True)
class SamplingTask:
    """Batches to sample, the same for every side; also the graph as our samplers take it."""

    indptr_indices: Csc
    seeds: npt.NDArray[np.int64]
    """Shape (batches, batch size); no node twice."""
    options: SamplingOptions
    """How to sample; fanouts are one number per hop."""
    threads: int
    """Threads of each side."""
    weights: npt.NDArray[np.float32] | None = None
    """Shape (edges,), along the CSC; for ``weighted``."""
    node_types: list[str] = field(default_factory=lambda: ["node"])
    relations: list[Relation] = field(default_factory=lambda: [("node", "to", "node")])

    @classmethod
    def of(
        cls, sizes: Sizes, sampler: str = "uniform", fanouts: Sequence[int] = FANOUTS, batches: int = 40, **options: Any
    ) -> SamplingTask:
        """Return up to `batches` batches of 1000 random nodes of the R-MAT graph; weights are uniform in (0, 1]."""
        csc = sizes.csc()
        batch_size = min(1000, max(1, sizes.nodes // 16))
        rng = np.random.default_rng(sizes.seed)
        seeds = draw_seeds(rng, sizes.nodes, batches, batch_size)
        weights = 1 - rng.random(csc[1].size, dtype=np.float32) if sampler == "weighted" else None
        how = SamplingOptions(tuple(fanouts), batch_size, sampler=sampler, seed=sizes.seed, **options)
        return cls(csc, seeds, how, sizes.threads, weights)

    def num_nodes(self, node_type: str = "node") -> int:
        """Return the number of nodes."""
        return int(self.indptr_indices[0].size) - 1

    def csc(self, relation: Relation | None = None) -> Csc:
        """Return ``(indptr, indices)``."""
        return self.indptr_indices

    def edge_data(self, relation: Relation) -> dict[str, npt.NDArray[Any]]:
        """Return the weights, if there are any."""
        return {} if self.weights is None else {"weight": self.weights}

    def arrays(self) -> dict[str, Any]:
        """Return the arrays that the peers' program reads."""
        indptr, indices = self.indptr_indices
        return {"indptr": indptr, "indices": indices, "seeds": self.seeds, "weights": self.weights}

    def how(self) -> dict[str, Any]:
        """Return the options of the peers' program."""
        told = {name: getattr(self.options, name) for name in ("sampler", "num_walks", "walk_length", "restart")}
        return told | {"fanouts": list(self.options.fanouts), "threads": self.threads}


def draw_seeds(rng: np.random.Generator, nodes: int, batches: int, batch_size: int) -> npt.NDArray[np.int64]:
    """Return up to `batches` batches of different nodes."""
    batches = min(batches, nodes // batch_size)
    return rng.permutation(nodes)[: batches * batch_size].reshape(batches, batch_size).astype(np.int64)


def _compare(name: str, sampler: str, sizes: Sizes, scramble: bool = False, **how: Any) -> Comparison:
    """Sample all batches with each side in turn; the rate is sampled edges per second.

    Ours returns everything a training step needs (nodes, edges in local ids by hop) and samples whole batches side by
    side. The peers are timed in both ways of using threads: all in one batch, and batches side by side.
    """
    if scramble:
        sizes = replace(sizes, scramble=True)
    task = SamplingTask.of(sizes, sampler, **how)
    ours_sampler = make_sampler(task, task.options)
    batches, batch_size = task.seeds.shape
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(task.threads))

        def ours() -> int:
            return sum(pool.map(lambda b: ours_sampler.sample(task.seeds[b], batch=b).num_edges, range(batches)))

        edges = ours()
        peers: dict[str, Work | str] = {}
        pythons = {"dgl": sizes.dgl_python or sys.executable, "graphbolt": sizes.graphbolt_python}
        for package, python in pythons.items():
            if sampler not in _KNOWN[package]:
                peers[package] = f"has no sampler {sampler!r}"
            elif python is None:
                peers[package] = HOW_TO
            else:
                worker, _ = stack.enter_context(library(package, python, task.how(), task.arrays()))
                if isinstance(worker, str):
                    peers[package] = worker
                else:
                    peers |= {f"{worker.name}, {work}": worker.work(work) for work in worker.works}
        for label, peer in peers.items():
            if not isinstance(peer, str):
                expect_as_many(name, label, edges, peer().result)
        about = {"fanouts": list(task.options.fanouts), "batch_size": batch_size, "batches": batches}
        return sizes.compare(name, ours, peers, edges, **about)


def expect_as_many(name: str, label: str, ours: int, theirs: int) -> None:
    """Check that the numbers of edges agree nearly: chance decides which nodes are drawn."""
    near = abs(theirs - ours) <= 0.02 * ours + 5 * sqrt(ours)
    expect(name, near, f"number of edges ({label}): {ours} and {theirs}")


uniform = partial(_compare, "sampling", "uniform")
replacement = partial(_compare, "sampling-replacement", "replacement")
weighted = partial(_compare, "sampling-weighted", "weighted", batches=10)
"""Compare samplers; the graph's preparation (running sums of weights) is not timed."""
pinsage = partial(_compare, "sampling-pinsage", "pinsage", scramble=True, fanouts=(10, 10), batches=4, num_walks=50)
"""50 walks of up to 2 steps per node, top 10 visited. DGL walks the reversed graph.

Ids are scrambled: ours sets equal visits by lower id, DGL by higher, which must not mean hubs or leaves.
"""
ladies = partial(_compare, "sampling-ladies", "ladies", fanouts=(2000, 4000), batches=10)
"""Neither peer has it."""
