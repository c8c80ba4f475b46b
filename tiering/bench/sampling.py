"""Neighbour sampling beside DGL's and GraphBolt's: same graph, seeds, fanouts and threads, in turn in one run.

Before anything is timed, every side samples all batches once and the numbers of edges are compared: a sampler that
returns fewer edges is not faster.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from math import sqrt

from tiering.bench.dgl_side import dgl_sides
from tiering.bench.graphbolt_side import graphbolt_sides
from tiering.bench.harness import Comparison
from tiering.bench.peers import expect
from tiering.bench.sampling_task import SamplingTask
from tiering.bench.sizes import Sizes
from tiering.sampling import make_sampler


def bench_sampling(sizes: Sizes) -> Comparison:
    """Uniform, without replacement."""
    return _compare("sampling", sizes, SamplingTask.of(sizes))


def bench_replacement(sizes: Sizes) -> Comparison:
    """Uniform, with replacement."""
    return _compare("sampling-replacement", sizes, SamplingTask.of(sizes, "replacement"))


def bench_weighted(sizes: Sizes) -> Comparison:
    """By edge weights, without replacement. What is prepared once for the graph (running sums) is not timed."""
    return _compare("sampling-weighted", sizes, SamplingTask.of(sizes, "weighted", batches=10))


def bench_pinsage(sizes: Sizes) -> Comparison:
    """Random walks with restart, 50 of up to 2 steps per node, top 10 visited; DGL walks the reversed graph.

    Ids are scrambled: ours sets equal visits by lower id, DGL by higher, which must not mean hubs or leaves.
    """
    sizes = replace(sizes, scramble=True)
    task = SamplingTask.of(sizes, "pinsage", (10, 10), batches=4, num_walks=50)
    return _compare("sampling-pinsage", sizes, task)


def bench_ladies(sizes: Sizes) -> Comparison:
    """Layer-wise importance sampling, 2000 and 4000 nodes; neither peer has it."""
    return _compare("sampling-ladies", sizes, SamplingTask.of(sizes, "ladies", (2000, 4000), batches=10))


def _compare(name: str, sizes: Sizes, task: SamplingTask) -> Comparison:
    """Sample all batches with each side in turn; the rate is sampled edges per second.

    Ours returns everything a training step needs (nodes, edges in local ids by hop) and samples whole batches side by
    side. The peers are timed in both ways of using threads: all in one batch, and batches side by side.
    """
    sampler = make_sampler(task.graph(), task.options)

    def one(b: int) -> int:
        return sampler.sample(task.seeds[b], batch=b).num_edges

    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(task.threads))
        batches, batch_size = task.seeds.shape

        def ours() -> int:
            return sum(pool.map(one, range(batches)))

        edges = ours()
        peers = {
            **stack.enter_context(dgl_sides(task)),
            **stack.enter_context(graphbolt_sides(task, sizes.graphbolt_python)),
        }
        for label, peer in peers.items():
            if not isinstance(peer, str):
                expect_as_many(name, label, edges, peer())
        about = {"fanouts": task.fanouts, "batch_size": batch_size, "batches": batches}
        return sizes.compare(name, ours, peers, edges, **about)


def expect_as_many(name: str, label: str, ours: int, theirs: int) -> None:
    """Which nodes are drawn is up to chance, so the numbers of edges agree only nearly."""
    near = abs(theirs - ours) <= 0.02 * ours + 5 * sqrt(ours)
    expect(name, near, f"number of edges ({label}): {ours} and {theirs}")
