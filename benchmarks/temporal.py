"""Sampling in time and of disjoint batches, against our own static sampler: same graph, seeds, fanouts and threads.

The rate is edges per second. A disjoint batch has more edges than a static one, which joins the nodes of its seeds; one
in time has fewer: the static side's seconds are those it takes for as many edges.
``--graphbolt-python`` adds one hop of GraphBolt's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from benchmarks.harness import Comparison, Sizes, Spent, cpu_seconds
from benchmarks.sampling import SamplingTask, expect_as_many
from benchmarks.workers import library
from tiering.formats.times import GraphTime
from tiering.sampling import Relation, Sampler, SamplingOptions, make_sampler

SPAN = 1_000_000  # times of edges are even in [0, SPAN); those of seeds in its upper two thirds
AIM = 0.6
"""Share of the static sampler's edges per second that is aimed at."""
VARIANTS: dict[str, dict[str, Any]] = {
    "disjoint": {"disjoint": True},
    "temporal-uniform": {"time": "time"},
    "temporal-last": {"time": "time", "temporal_strategy": "last"},
    "temporal-window": {"time": "time", "time_window": SPAN // 4},
}


@dataclass(frozen=True)
class TemporalTask(SamplingTask):
    """Batches of a graph whose edges have times, ascending in each list."""

    edge_times: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    time: ClassVar[GraphTime] = GraphTime("time", "edges", "int64")

    def times(self, relation: Relation) -> npt.NDArray[np.int64]:
        """Return the time of each edge."""
        return self.edge_times

    def node_times(self, node_type: str) -> None:
        """Return no times: nodes have none."""


def temporal(sizes: Sizes) -> Iterator[Comparison]:
    """Compare each variant with the static sampler; whole batches side by side on all threads."""
    task = SamplingTask.of(sizes, frontier="new")
    indptr, indices = task.indptr_indices
    rng = np.random.default_rng(sizes.seed)
    in_order = np.sort(rng.random(indices.size) + np.repeat(np.arange(indptr.size - 1), np.diff(indptr)))
    times = ((in_order % 1) * SPAN).astype(np.int64)
    timed = TemporalTask(task.indptr_indices, task.seeds, task.options, task.threads, edge_times=times)
    seed_time = rng.integers(SPAN // 3, SPAN, task.seeds.shape)
    static = make_sampler(timed, task.options)
    with ThreadPoolExecutor(task.threads) as pool:
        for name, how in VARIANTS.items():
            options = SamplingOptions(
                task.options.fanouts, task.options.batch_size, frontier="new", seed=sizes.seed, **how
            )
            clocks = seed_time if "time" in how else None
            ours = partial(_sample_all, pool, make_sampler(timed, options), task.seeds, clocks)
            edges = ours()
            peers: Any = {
                "our static sampler": partial(_as_many, partial(_sample_all, pool, static, task.seeds), edges)
            }
            about = {"fanouts": list(task.options.fanouts), "batches": len(task.seeds), "variant": name}
            compared = sizes.compare("temporal", ours, peers, edges, **about)
            compared.peers[0].target = AIM
            yield compared
        if sizes.graphbolt_python is not None:
            yield _one_hop(sizes, timed, seed_time, pool)


def _one_hop(
    sizes: Sizes, task: TemporalTask, seed_time: npt.NDArray[np.int64], pool: ThreadPoolExecutor
) -> Comparison:
    """Compare one hop with GraphBolt's: it takes times before that of the seed, and is asked for the next."""
    options = replace(task.options, fanouts=task.options.fanouts[:1], time="time")
    ours = partial(_sample_all, pool, make_sampler(task, options), task.seeds, seed_time)
    edges, told = ours(), {**task.how(), "fanouts": list(options.fanouts)}
    arrays = task.arrays() | {"times": task.edge_times, "seeds": np.stack([task.seeds, seed_time + 1], 1)}
    with library("graphbolt", str(sizes.graphbolt_python), told, arrays) as (worker, _):
        peers: Any = {"graphbolt": worker} if isinstance(worker, str) else {
            f"{worker.name}, {work}": worker.work(work) for work in worker.works
        }  # fmt: skip
        for label, peer in peers.items():
            if not isinstance(peer, str):
                expect_as_many("temporal", label, edges, peer().result)
        about = {"fanouts": list(options.fanouts), "batches": len(task.seeds), "variant": "temporal-uniform"}
        return sizes.compare("temporal-one-hop", ours, peers, edges, **about)


def _sample_all(pool: ThreadPoolExecutor, sampler: Sampler, seeds: npt.NDArray[np.int64], seed_time: Any = None) -> int:
    """Sample each row of `seeds` as a batch; return the number of edges."""

    def sample(b: int) -> int:
        times = None if seed_time is None else seed_time[b]
        return sampler.sample(seeds[b], batch=b, seed_time=times).num_edges

    return sum(pool.map(sample, range(len(seeds))))


def _as_many(work: Callable[[], int], edges: int) -> Spent:
    """Return the cost of work that returns its number of edges, for `edges` of them."""
    cpu, wall = cpu_seconds(), time.perf_counter()
    scale = edges / work()
    return Spent((time.perf_counter() - wall) * scale, (cpu_seconds() - cpu) * scale, edges)
