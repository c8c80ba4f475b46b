"""Commands and kernels of one checkout: ``python checkout.py TASK``, by that checkout's interpreter.

The other side may be a version with other module paths. So this uses only what versions have in common: the command
line, called in this process so that its start does not count, ``tiering.open``, the samplers, and kernels by name.
What a version lacks is an error of that one work.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from loop import serve

sys.path.append(str(Path(__file__).parents[1]))  # what the other side has of the benchmarks may differ

from csc_edges import coo_to_csc
from relabel import relabel_graph
from rmat import rmat_edges

import tiering
from tiering.cli.main import main


class Checkout:
    """The works of this side; the task has ``scale``, ``edges``, ``threads``, as JSON."""

    def __init__(self, task: str) -> None:
        self._task = json.loads(task)
        self._ready: dict[str, Callable[[], object]] = {}

    def command(self, *arguments: str) -> None:
        """Run a command; options that versions name differently stand as ``old|new``."""
        line = [self._known_option(arguments[0], word) if "|" in word else word for word in arguments]
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
            code = main(line)
        if code:
            raise RuntimeError(said.getvalue().strip()[-300:])

    def _known_option(self, command: str, names: str) -> str:
        with contextlib.redirect_stdout(io.StringIO()) as page:
            main([command, "--help"])
        return next(name for name in names.split("|") if name in page.getvalue())

    def prepare(self, work: str, *arguments: str) -> None:
        """Get a kernel, a gather or a sampler ready; `run` does its work."""
        self._ready[work] = getattr(self, f"_{work}")(*arguments)
        self._ready[work]()

    def run(self, work: str) -> None:
        """Run a work that `prepare` made ready."""
        self._ready[work]()

    def _kernel(self, name: str) -> Callable[[], object]:
        """Return a kernel on the R-MAT graph, ids scrambled."""
        from tiering import native

        threads = self._task["threads"]
        n, edges = 1 << self._task["scale"], self._task["edges"]
        src, dst = rmat_edges(self._task["scale"], edges, 1, scramble=True)
        indptr, indices, _ = coo_to_csc(src, dst, n, n, threads)
        degrees = native.out_degrees(indices, n, threads).astype(np.float64)
        order = native.sort_by_score(degrees, threads)
        ranks = np.empty_like(order)
        ranks[order] = np.arange(n, dtype=order.dtype)
        relations, start = [(0, 0, indptr, indices)], np.full(n, 1.0 / n)
        hops = [[10], [10], [10]]
        kernels: dict[str, Callable[[], object]] = {
            "coo_to_csc": lambda: coo_to_csc(src, dst, n, n, threads),
            "out_degrees": lambda: native.out_degrees(indices, n, threads),
            "sort_by_score": lambda: native.sort_by_score(degrees, threads),
            "relabel": lambda: relabel_graph(indptr, indices, ranks, ranks, threads),
            "reverse_pagerank": lambda: native.reverse_pagerank(
                relations, [n], [start], [start], 0.85, 5, 0.0, threads
            ),
            "inclusion_probability": lambda: native.inclusion_probability(
                relations, [n], [start], hops, "all", False, threads
            ),
        }
        return kernels[name]

    def _gather(self, layout: str, tier: str) -> Callable[[], object]:
        """Return the random rows of one tier, in batches of 20,000."""
        opened = tiering.open(layout)
        entry = opened.artifact.type_layout("node")
        first, end = {"cpu": (0, entry.num_nodes // 2), "ssd": (entry.num_nodes // 2, entry.num_nodes)}[tier]
        table = opened.features("node")
        rng = np.random.default_rng(1)
        batches = [rng.integers(first, end, 20_000) for _ in range(50 if tier == "cpu" else 3)]
        outs = [table.gather(batches[0])]

        def gather() -> None:
            for ids in batches:
                outs[0] = table.gather(ids)

        return gather

    def _sample(self, graph: str, sampler: str, fanouts: str, count: str) -> Callable[[], object]:
        """Return the batches of 1000 random nodes, one after the other."""
        from tiering.sampling import SamplingOptions, make_sampler

        opened = tiering.open(graph)
        options = SamplingOptions(tuple(map(int, fanouts.split(","))), 1000, sampler=sampler)
        ours = make_sampler(opened, options)
        nodes = np.random.default_rng(1).permutation(1 << self._task["scale"])
        seeds = [nodes[b * 1000 : (b + 1) * 1000] for b in range(int(count)) if b * 1000 < nodes.size]
        return lambda: [ours.sample(batch, batch=b) for b, batch in enumerate(seeds)]


def make(task: str) -> tuple[str, dict[str, Callable[..., Any]]]:
    """Return version and folder, and the works."""
    side = Checkout(task)
    folder = Path(tiering.__file__).resolve().parents[1]
    works = {"command": side.command, "prepare": side.prepare, "run": side.run}
    return f"tiering {tiering.__version__} in {folder.name}", works


if __name__ == "__main__":
    serve(make)
