"""Neighbour sampling beside DGL's and GraphBolt's: same graph, seeds, fanouts and threads, in turn in one run.

Before anything is timed, every side samples all batches once and the numbers of edges are compared: a sampler that
returns fewer edges is not faster.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.harness import Comparison, Csc, Sizes, Work, expect
from benchmarks.workers import Worker
from tiering.errors import CapabilityError
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
        """Up to `batches` batches of 1000 random nodes of the R-MAT graph; weights are uniform in (0, 1]."""
        csc = sizes.csc()
        batch_size = min(1000, max(1, sizes.nodes // 16))
        rng = np.random.default_rng(sizes.seed)
        seeds = draw_seeds(rng, sizes.nodes, batches, batch_size)
        weights = 1 - rng.random(csc[1].size, dtype=np.float32) if sampler == "weighted" else None
        how = SamplingOptions(tuple(fanouts), batch_size, sampler=sampler, seed=sizes.seed, **options)
        return cls(csc, seeds, how, sizes.threads, weights)

    def num_nodes(self, node_type: str = "node") -> int:
        """Number of nodes."""
        return int(self.indptr_indices[0].size) - 1

    def csc(self, relation: Relation | None = None) -> Csc:
        """``(indptr, indices)``."""
        return self.indptr_indices

    def edge_data(self, relation: Relation) -> dict[str, npt.NDArray[Any]]:
        """The weights, if there are any."""
        return {} if self.weights is None else {"weight": self.weights}

    def write(self, folder: Path) -> None:
        """As the peers' program reads it."""
        names = ("indptr", "indices", "seeds", "weights")
        for name, array in zip(names, (*self.indptr_indices, self.seeds, self.weights), strict=True):
            if array is not None:
                np.save(folder / f"{name}.npy", array)
        task = {name: getattr(self.options, name) for name in ("sampler", "num_walks", "walk_length", "restart")}
        task |= {"fanouts": list(self.options.fanouts), "threads": self.threads}
        (folder / "task.json").write_text(json.dumps(task))


def draw_seeds(rng: np.random.Generator, nodes: int, batches: int, batch_size: int) -> npt.NDArray[np.int64]:
    """Up to `batches` batches of different nodes."""
    batches = min(batches, nodes // batch_size)
    return rng.permutation(nodes)[: batches * batch_size].reshape(batches, batch_size).astype(np.int64)


def uniform(sizes: Sizes) -> Comparison:
    """Uniform, without replacement."""
    return _compare("sampling", sizes, SamplingTask.of(sizes))


def replacement(sizes: Sizes) -> Comparison:
    """Uniform, with replacement."""
    return _compare("sampling-replacement", sizes, SamplingTask.of(sizes, "replacement"))


def weighted(sizes: Sizes) -> Comparison:
    """By edge weights, without replacement. What is prepared once for the graph (running sums) is not timed."""
    return _compare("sampling-weighted", sizes, SamplingTask.of(sizes, "weighted", batches=10))


def pinsage(sizes: Sizes) -> Comparison:
    """Random walks with restart, 50 of up to 2 steps per node, top 10 visited; DGL walks the reversed graph.

    Ids are scrambled: ours sets equal visits by lower id, DGL by higher, which must not mean hubs or leaves.
    """
    sizes = replace(sizes, scramble=True)
    task = SamplingTask.of(sizes, "pinsage", (10, 10), batches=4, num_walks=50)
    return _compare("sampling-pinsage", sizes, task)


def ladies(sizes: Sizes) -> Comparison:
    """Layer-wise importance sampling, 2000 and 4000 nodes; neither peer has it."""
    return _compare("sampling-ladies", sizes, SamplingTask.of(sizes, "ladies", (2000, 4000), batches=10))


def _compare(name: str, sizes: Sizes, task: SamplingTask) -> Comparison:
    """Sample all batches with each side in turn; the rate is sampled edges per second.

    Ours returns everything a training step needs (nodes, edges in local ids by hop) and samples whole batches side by
    side. The peers are timed in both ways of using threads: all in one batch, and batches side by side.
    """
    sampler = make_sampler(task, task.options)
    batches, batch_size = task.seeds.shape
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(task.threads))

        def ours() -> int:
            return sum(pool.map(lambda b: sampler.sample(task.seeds[b], batch=b).num_edges, range(batches)))

        edges = ours()
        peers: dict[str, Work | str] = {}
        pythons = {"dgl": sizes.dgl_python or sys.executable, "graphbolt": sizes.graphbolt_python}
        for library, python in pythons.items():
            peers |= _sides(stack, task, library, python)
        for label, peer in peers.items():
            if not isinstance(peer, str):
                expect_as_many(name, label, edges, peer().result)
        about = {"fanouts": list(task.options.fanouts), "batch_size": batch_size, "batches": batches}
        return sizes.compare(name, ours, peers, edges, **about)


def _sides(stack: ExitStack, task: SamplingTask, library: str, python: Path | str | None) -> dict[str, Work | str]:
    """A library in both ways of using threads, as long as `stack` is open; or why it is not there."""
    if task.options.sampler not in _KNOWN[library]:
        return {library: f"has no sampler {task.options.sampler!r}"}
    if python is None:
        return {library: HOW_TO}
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tiering-bench-")))
    task.write(folder)
    try:
        worker = stack.enter_context(Worker(python, "peers.py", library, folder))
    except CapabilityError as error:
        return {library: f"not installed or not loadable: {error}"}
    return {f"{worker.name}, {work}": worker.work(work) for work in worker.works}


def expect_as_many(name: str, label: str, ours: int, theirs: int) -> None:
    """Which nodes are drawn is up to chance, so the numbers of edges agree only nearly."""
    near = abs(theirs - ours) <= 0.02 * ours + 5 * sqrt(ours)
    expect(name, near, f"number of edges ({label}): {ours} and {theirs}")
