"""What a sampled edge costs, step by step, for graphs from in-cache to far out of it.

``python tests/benchmarks/sampling_cost.py [SCALE ...] [--docs DIR]`` builds `sampling_cost.cpp` with the C++ compiler,
runs it on scrambled R-MAT graphs of 2**SCALE nodes and 12 edges a node, and prints nanoseconds per sampled edge, on one
thread: the steps alone, plainly and with their reads announced ahead, and beside them the sampler's own time, in which
the steps run interleaved. With ``--docs`` it writes ``benchmarks/sampling-cost.json`` and the table of ``sampling.md``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tiering.bench.machine import describe_machine
from tiering.bench.sampling_task import SamplingTask
from tiering.bench.sizes import Sizes
from tiering.sampling import NeighborSampler, SamplingOptions

HERE = Path(__file__).resolve().parent
SCALES = (12, 16, 19, 22, 24)
EDGES_PER_NODE = 12
HOPS, FANOUT = 3, 10
BEGIN, END = "<!-- sampling cost: begin -->", "<!-- sampling cost: end -->"


def build(folder: Path) -> Path:
    """Compile the program into `folder`."""
    compiler = os.environ.get("CXX") or shutil.which("c++") or "c++"
    program = folder / "sampling_cost"
    include = HERE.parents[1] / "ext" / "include"
    source = HERE / "sampling_cost.cpp"
    subprocess.run([compiler, "-std=c++20", "-O3", "-I", include, source, "-o", program], check=True)
    return program


def measure(program: Path, folder: Path, scale: int, batches: int = 20, batch_size: int = 1000) -> dict[str, Any]:
    """Nanoseconds per sampled edge on one graph."""
    batch_size = min(batch_size, 1 << scale)
    sizes = Sizes(scale=scale, edges=EDGES_PER_NODE << scale, threads=1, scramble=True)
    indptr, indices = sizes.csc()
    indptr.tofile(folder / "indptr")
    indices.tofile(folder / "indices")
    arguments = [folder / "indptr", folder / "indices", batches, batch_size, FANOUT, HOPS]
    said = subprocess.run([program, *map(str, arguments)], check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(said.stdout)
    seeds = np.random.default_rng(0).integers(0, sizes.nodes, (batches, batch_size))
    task = SamplingTask((indptr, indices), seeds, SamplingOptions((FANOUT,) * HOPS), 1)
    nbytes = indptr.nbytes + indices.nbytes
    return {"scale": scale, "graph_MB": round(nbytes / 1e6, 1), **found, "sampler": sampler_cost(task)}


def sampler_cost(task: SamplingTask, runs: int = 5) -> float:
    """Nanoseconds per edge of `NeighborSampler.sample`, best of `runs`."""
    sampler = NeighborSampler(task.graph(), task.fanouts)
    best = float("inf")
    for _ in range(runs + 1):
        start = time.perf_counter()
        edges = sum(sampler.sample(seeds, batch=b).num_edges for b, seeds in enumerate(task.seeds))
        best = min(best, (time.perf_counter() - start) * 1e9 / edges)
    return round(best, 3)


def table(results: Sequence[dict[str, Any]]) -> str:
    """Markdown: a column per graph, a row per step."""
    heads = [f"{1 << result['scale']:,} nodes" for result in results]
    rows = [["ns per sampled edge", *heads], ["---"] * (len(heads) + 1)]
    rows.append(["graph, MB", *(f"{result['graph_MB']:g}" for result in results)])
    steps = [key for key in results[0] if key not in ("scale", "graph_MB", "edges", "frontier_nodes")]
    rows += [[step, *(f"{result[step]:.1f}" for result in results)] for step in steps]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def write(docs: Path, results: Sequence[dict[str, Any]]) -> None:
    """Write the figures and the table between the markers of ``sampling.md``."""
    figures = {"machine": describe_machine(), "results": results}
    (docs / "benchmarks").mkdir(exist_ok=True)
    (docs / "benchmarks" / "sampling-cost.json").write_text(json.dumps(figures, indent=1) + "\n")
    page = docs / "sampling.md"
    head, rest = page.read_text().split(BEGIN)
    page.write_text(f"{head}{BEGIN}\n\n{table(results)}\n\n{END}{rest.split(END)[1]}")


def main(arguments: Sequence[str]) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scales", nargs="*", type=int)
    parser.add_argument("--docs", type=Path)
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = build(folder)
        results = [measure(program, folder, scale) for scale in asked.scales or SCALES]
    if asked.docs is not None:
        write(asked.docs, results)
    print(table(results))


if __name__ == "__main__":
    main(sys.argv[1:])
