"""What comparing inputs with their checksums costs each stage: turns with and without, and seconds spent on it.

Ratios are those of turns that follow each other, above 1 where verified turns took longer. ``comparing`` is the share
of a verified turn that comparing took by its own clock, which a noisy machine disturbs less.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.harness import Comparison, Sizes, Spent, Work, compare, take_turn
from benchmarks.stages import bench_folder
from tiering import native, pipeline
from tiering.io.verify import Verifier

_DIM = 32


def verification(sizes: Sizes) -> list[Comparison]:
    """Each stage on an R-MAT graph with features of 128 bytes a row, all inputs in the page cache."""
    with bench_folder(sizes) as folder:
        graph = _inputs(sizes, folder)
        clock = _Clock()
        try:
            return [_one(sizes, name, stage, folder / "out", clock) for name, stage in stages(folder, graph).items()]
        finally:
            clock.restore()


def _inputs(sizes: Sizes, folder: Path) -> Path:
    """The graph, its scores, and the graph in their order."""
    data, nodes = folder / "data", sizes.nodes
    data.mkdir()
    np.save(data / "edge_index.npy", np.stack(native.rmat_edges(sizes.scale, sizes.edges, 0, sizes.threads, True)))
    np.save(data / "node_feat.npy", np.random.default_rng(0).random((nodes, _DIM), np.float32))
    np.save(data / "train_idx.npy", np.random.default_rng(1).choice(nodes, max(1, nodes // 100), replace=False))
    graph = pipeline.import_dataset(data, folder / "graph", num_nodes=str(nodes), checksum_features=True)
    scores = pipeline.score(graph, folder / "scores", "wrpr")
    pipeline.reorder(graph, scores, folder / "reordered")
    pipeline.reorder(graph, scores, folder / "ranked", features=True)
    return folder / "graph"


def stages(folder: Path, graph: Path) -> dict[str, Callable[..., object]]:
    """Stages by name, each as a call with an output and whether to verify."""
    scores, sampling = folder / "scores", {"fanouts": "10,10", "batch_size": 1024}
    calls: dict[str, tuple[Callable[..., object], tuple[Any, ...], tuple[Any, ...], dict[str, Any]]] = {
        "score degree": (pipeline.score, (graph,), ("degree",), {}),
        "score wrpr": (pipeline.score, (graph,), ("wrpr",), {}),
        "score vip": (pipeline.score, (graph,), ("vip",), sampling),
        "score hybrid": (pipeline.score, (graph,), ("hybrid",), sampling),
        "transpose": (pipeline.transpose, (graph,), (), {}),
        "reorder": (pipeline.reorder, (graph, scores), (), {}),
        "reorder --features": (pipeline.reorder, (graph, scores), (), {"features": True}),
        "layout": (pipeline.layout, (folder / "reordered",), (), {"gpu": "10%"}),
        "layout of ranked rows": (pipeline.layout, (folder / "ranked",), (), {"gpu": "10%"}),
    }

    def stage(call: Callable[..., object], before: Any, after: Any, options: Any) -> Callable[..., object]:
        return lambda out, verify: call(*before, out, *after, verify=verify, **options)

    return {name: stage(*given) for name, given in calls.items()}


def _one(sizes: Sizes, name: str, stage: Callable[..., object], out: Path, clock: _Clock) -> Comparison:
    shares: list[float] = []

    def turn(verify: bool) -> Work:
        def work() -> Spent:
            clock.seconds = 0.0
            spent = take_turn(lambda: stage(out, verify))
            shutil.rmtree(out)
            if verify:
                shares.append(clock.seconds / spent.wall)
            return spent

        return work

    result = compare(
        "verification", turn(False), {"verified": turn(True)}, amount=sizes.edges, unit="edges", repeats=sizes.repeats,
        parameters={"stage": name, "scale": sizes.scale, "edges": sizes.edges},
    )  # fmt: skip
    result.ours.name = "--no-verify"
    result.parameters["comparing"] = round(median(shares), 4)
    return result


class _Clock:
    """Seconds that `Verifier` takes, in all threads."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._plain = {name: getattr(Verifier, name) for name in ("finish", "passed")}
        for name, method in self._plain.items():
            setattr(Verifier, name, self._timed(method))

    def restore(self) -> None:
        """Take the clock out."""
        for name, method in self._plain.items():
            setattr(Verifier, name, method)

    def _timed(self, plain: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: Any) -> None:
            begun = time.perf_counter()
            try:
                plain(*arguments)
            finally:
                self.seconds += time.perf_counter() - begun

        return call
