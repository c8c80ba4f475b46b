"""What a sampled edge costs, step by step, for graphs from in-cache to far out of it.

``python tests/benchmarks/sampling_cost.py [SCALE ...] [--json]`` builds `sampling_cost.cpp` with the C++ compiler, runs
it on scrambled R-MAT graphs of 2**SCALE nodes and 12 edges a node, and prints nanoseconds per sampled edge, on one
thread: the steps alone, plainly and with their reads announced ahead, and beside them the sampler's own time, in which
the steps run interleaved.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from tiering.bench.sampling_task import SamplingTask
from tiering.bench.sizes import Sizes
from tiering.sampling import NeighborSampler

HERE = Path(__file__).resolve().parent
SCALES = (12, 16, 19, 22, 24)
EDGES_PER_NODE = 12
HOPS, FANOUT = 3, 10


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
    task = SamplingTask((indptr, indices), seeds, (FANOUT,) * HOPS, 1)
    nbytes = indptr.nbytes + indices.nbytes
    return {"scale": scale, "graph_MB": round(nbytes / 1e6, 1), **found, "sampler": sampler_cost(task)}


def sampler_cost(task: SamplingTask, runs: int = 5) -> float:
    """Nanoseconds per edge of `NeighborSampler.sample`, best of `runs`."""
    sampler = NeighborSampler(task.graph(), list(task.fanouts))
    best = float("inf")
    for _ in range(runs + 1):
        start = time.perf_counter()
        edges = sum(sampler.sample(seeds, batch=b).num_edges for b, seeds in enumerate(task.seeds))
        best = min(best, (time.perf_counter() - start) * 1e9 / edges)
    return round(best, 3)


def main(arguments: list[str]) -> None:
    """Measure and print."""
    scales = [int(argument) for argument in arguments if argument != "--json"] or list(SCALES)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = build(folder)
        results = [measure(program, folder, scale) for scale in scales]
    if "--json" in arguments:
        print(json.dumps(results, indent=1))
        return
    for key in results[0]:
        print(f"{key:<20}" + "".join(f"{result[key]:>14}" for result in results))


if __name__ == "__main__":
    main(sys.argv[1:])
