"""What comparing inputs with their checksums costs each stage: seconds spent on it, and turns with and without.

    python tests/benchmarks/verification.py [--scale 22] [--edges 50000000] [--turns 5] [--json FILE]

Prints, for each stage, both medians, the ratio of turns that follow each other with its spread, and the share of a turn
that comparing takes by its own clock, which a noisy machine disturbs less.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tiering import native, pipeline
from tiering.artifacts.verify import Verifier

DIM = 32


def make_inputs(folder: Path, scale: int, edges: int) -> None:
    """An R-MAT graph with features of 128 bytes a row, its scores, and the graph in their order."""
    data, nodes = folder / "data", 1 << scale
    data.mkdir()
    np.save(data / "edge_index.npy", np.stack(native.rmat_edges(scale, edges, 0, 2, True)))
    np.save(data / "node_feat.npy", np.random.default_rng(0).random((nodes, DIM), np.float32))
    np.save(data / "train_idx.npy", np.random.default_rng(1).choice(nodes, nodes // 100, replace=False))
    graph = pipeline.import_dataset(data, folder / "graph", num_nodes=str(nodes), checksum_features=True)
    scores = pipeline.score(graph, folder / "scores", "wrpr")
    pipeline.reorder(graph, scores, folder / "reordered")
    pipeline.reorder(graph, scores, folder / "ranked", features=True)


def stages(folder: Path) -> dict[str, Callable[[Path, bool], object]]:
    """Stages by name, each as a call with an output and whether to verify."""
    graph, scores = folder / "graph", folder / "scores"
    sampling = {"fanouts": "10,10", "batch_size": 1024}
    return {
        "score degree": lambda out, verify: pipeline.score(graph, out, "degree", verify=verify),
        "score wrpr": lambda out, verify: pipeline.score(graph, out, "wrpr", verify=verify),
        "score vip": lambda out, verify: pipeline.score(graph, out, "vip", verify=verify, **sampling),
        "score hybrid": lambda out, verify: pipeline.score(graph, out, "hybrid", verify=verify, **sampling),
        "transpose": lambda out, verify: pipeline.transpose(graph, out, verify=verify),
        "reorder": lambda out, verify: pipeline.reorder(graph, scores, out, verify=verify),
        "reorder --features": lambda out, verify: pipeline.reorder(graph, scores, out, features=True, verify=verify),
        "layout": lambda out, verify: pipeline.layout(folder / "reordered", out, gpu="10%", verify=verify),
        "layout of ranked rows": lambda out, verify: pipeline.layout(folder / "ranked", out, gpu="10%", verify=verify),
    }


def seconds(stage: Callable[[Path, bool], object], out: Path, verify: bool) -> float:
    begun = time.perf_counter()
    stage(out, verify)
    took = time.perf_counter() - begun
    shutil.rmtree(out)
    return took


class Clock:
    """Seconds that `Verifier` takes, in all threads."""

    def __init__(self) -> None:
        self.seconds = 0.0
        for name in ("finish", "passed"):
            setattr(Verifier, name, self._timed(getattr(Verifier, name)))

    def _timed(self, plain: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: Any) -> None:
            begun = time.perf_counter()
            try:
                plain(*arguments)
            finally:
                self.seconds += time.perf_counter() - begun

        return call


def measure(folder: Path, turns: int) -> dict[str, dict[str, float]]:
    """Seconds without and with, and the ratios of each pair, by stage."""
    found, clock = {}, Clock()
    for name, stage in stages(folder).items():
        seconds(stage, folder / "out", True)  # what a first run loads and maps
        pairs, shares = [], []
        for turn in range(turns):
            order = (False, True) if turn % 2 else (True, False)
            clock.seconds = 0.0
            took = {verify: seconds(stage, folder / "out", verify) for verify in order}
            pairs.append((took[False], took[True]))
            shares.append(clock.seconds / took[True])
        ratios = sorted(with_it / without for without, with_it in pairs)
        found[name] = {
            "without": statistics.median(without for without, _ in pairs),
            "with": statistics.median(with_it for _, with_it in pairs),
            "ratio": statistics.median(ratios),
            "least": ratios[0],
            "most": ratios[-1],
            "share": statistics.median(shares),
        }
        row = found[name]
        print(
            f"{name:22} {row['without']:7.3f} s without {row['with']:7.3f} s with   "
            f"{row['ratio']:.3f} ({row['least']:.3f} .. {row['most']:.3f})   comparing {row['share']:.1%}",
            flush=True,
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=int, default=22)
    parser.add_argument("--edges", type=int, default=50_000_000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        make_inputs(Path(name), given.scale, given.edges)
        found = measure(Path(name), given.turns)
    if given.json:
        document = {"scale": given.scale, "edges": given.edges, "stages": found}
        given.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
