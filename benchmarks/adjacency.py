"""Batches of graphs whose neighbor lists exceed memory: windows read from SSD against maps and MADV_RANDOM.

``python -m benchmarks adjacency [--dir DIR] [--nodes-log2 25] [--edges-per-node 16]`` makes a graph with degrees of a
power law in DIR, and orders it by ``hybrid`` scores. Each side samples in a memory group that has room for where lists
begin, for keys, for 160 MB and for a quarter of the lists; files leave the page cache before. ``--docs DIR`` writes
``benchmarks/adjacency.json`` and a table of ``internals/adjacency.md``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import tiering
from benchmarks.loader import drop
from benchmarks.memory_group import memory_group
from benchmarks.pages import describe_machine, markdown, put, show_machine, write_json
from tiering.errors import InternalError, TieringError
from tiering.text.units import format_bytes, parse_fanouts

BEGIN, END = "<!-- adjacency -->", "<!-- adjacency: end -->"
_PROGRAM = Path(__file__).parent / "programs" / "list_batches.py"
_BESIDE = 160_000_000
_CHUNK = 1 << 22
_SIDES = (
    ("windows", 1), ("MADV_RANDOM", 2), ("MADV_RANDOM", 16), ("memory", 1),
)  # fmt: skip
"""Sides and their threads; ``memory`` has all lists in memory, and no limit."""


def _mix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x ^= x >> np.uint64(shift)
        x *= np.uint64(factor)
    mixed: npt.NDArray[np.uint64] = x ^ (x >> np.uint64(31))
    return mixed


def make_edges(folder: Path, bits: int, edges: int) -> None:
    """Write edges whose sources and destinations follow i^(-2/3), ids scrambled, and 1 % training nodes."""
    folder.mkdir(parents=True, exist_ok=True)
    nodes = 1 << bits
    out = np.lib.format.open_memmap(folder / "edge_index.npy", "w+", np.int32, (2, edges))
    flat, mask = out.reshape(-1), np.uint64(nodes - 1)
    for at in range(0, 2 * edges, _CHUNK):
        count = min(_CHUNK, 2 * edges - at)
        numbers = np.arange(at + 1, at + count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(7)
        u = (_mix(numbers) >> np.uint64(11)).astype(np.float64) * 2.0**-53
        x = (nodes * (u * u * u)).astype(np.uint64)
        x = (x * np.uint64(0x9E3779B97F4A7C15)) & mask
        x ^= x >> np.uint64(bits // 2)
        flat[at : at + count] = (x * np.uint64(0xD1B54A32D192ED03)) & mask
    out.flush()
    chosen = _mix(np.arange(nodes, dtype=np.uint64) + np.uint64(12345)) % np.uint64(100) == 0
    np.save(folder / "train_idx.npy", np.flatnonzero(chosen))


def make_graph(folder: Path, bits: int, edges: int) -> Path:
    """Return a graph of a power law, ordered by ``hybrid`` scores, made where it is not there yet."""
    if (folder / "reordered").exists() and (folder / "graph").exists():
        return folder / "reordered"
    make_edges(folder / "data", bits, edges)
    graph = tiering.import_graph(folder / "data", folder / "graph", force=True)
    scores = tiering.score_graph(graph, folder / "scores", "hybrid", force=True, fanouts=[10, 10, 10], batch_size=1000)
    tiering.reorder_graph(graph, scores, folder / "reordered")
    return folder / "reordered"


def batches(side: str, graph: Path, options: dict[str, Any], limit: int | None) -> dict[str, Any]:
    """Run one process of a side, in a group of `limit` bytes."""
    drop(sorted(graph.rglob("indices")))
    with memory_group(limit) if limit else nullcontext() as group:
        done = subprocess.run(
            [sys.executable, str(_PROGRAM), side, str(graph), json.dumps(options)],
            capture_output=True, text=True, preexec_fn=group.enter if group else None,
        )  # fmt: skip
        peak = 0
        if group is not None and not group.unified:
            peak = int((group.path / "memory.max_usage_in_bytes").read_text())
    if done.returncode:
        raise InternalError(f"{side}: exit {done.returncode}: {done.stderr[-2000:]}")
    return {"side": side, "threads": options["threads"], **json.loads(done.stdout.splitlines()[-1]), "peak": peak}


def presample(graph: Path, folder: Path, limit: int) -> dict[str, Any]:
    """Count an epoch by `tiering score --method presample` in a group of `limit` bytes."""
    drop(sorted(graph.rglob("indices")))
    argv = ["score", str(graph), "--method", "presample", "--fanouts", "10,10,10", "--batch-size", "1000"]
    argv += ["--epochs", "1", "--memory", str(limit), "--out", str(folder / "counted"), "--force"]
    with memory_group(int(1.1 * limit)) as group:
        start = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "cli", *argv], capture_output=True, text=True, preexec_fn=group.enter
        )
        seconds = time.perf_counter() - start
    if done.returncode:
        raise InternalError(f"presample: exit {done.returncode}: {done.stderr[-2000:]}")
    return {"side": "presample", "seconds": seconds, "limit": limit}


def _row(fanouts: str, found: dict[str, Any], ours: dict[str, Any]) -> list[str]:
    side = found["side"] if found["side"] != "MADV_RANDOM" else f"MADV_RANDOM, {found['threads']} threads"
    window = str(found.get("window", "-"))
    return [
        fanouts, side, window, f"{found['seconds']:.3f}", f"{found['seconds'] / ours['seconds']:.1f}",
        f"{found['processor']:.3f}", f"{found['reads']:,.0f}", f"{found['bytes'] / 1e6:,.0f}",
        f"{found['peak'] / 1e6:,.0f}", str(found["batches"]),
    ]  # fmt: skip


def main(argv: Sequence[str]) -> int:
    """Run the sides by turns, print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks adjacency", description=__doc__)
    parser.add_argument("--dir", type=Path, default=Path("build/adjacency"))
    parser.add_argument("--nodes-log2", type=int, default=25)
    parser.add_argument("--edges-per-node", type=int, default=16)
    parser.add_argument("--fanouts", default="10,10,10/15,10", help="several, divided by /")
    parser.add_argument("--batch-size", type=int, default=1000)
    parser.add_argument("--window", type=int, default=32)
    parser.add_argument("--batches", type=int, default=96)
    parser.add_argument("--seconds", type=float, default=150, help="of a side at most, before and while it is measured")
    parser.add_argument("--docs", type=Path, metavar="DIR", help="write the page and its figures there")
    given = parser.parse_args(argv)
    edges, rows, found = given.edges_per_node << given.nodes_log2, [], []
    try:
        graph = make_graph(given.dir, given.nodes_log2, edges)
        ordered: Any = tiering.open(graph)
        lists = sum(ordered.csc(r)[1].nbytes for r in ordered.relations)
        limit = 12 * ordered.num_nodes() + _BESIDE + lists // 4
        for fanouts in given.fanouts.split("/"):
            several: list[dict[str, Any]] = []
            for side, threads in _SIDES:
                slow = side == "MADV_RANDOM"  # whole rounds of its threads, as a round's batches begin together
                number = 4 * threads if slow else given.batches
                options = {
                    "fanouts": list(parse_fanouts(fanouts)), "batch_size": given.batch_size, "window": given.window,
                    "threads": threads, "batches": number, "warm": threads if slow else number // 2,
                    "seconds": given.seconds,
                }  # fmt: skip
                several.append(batches(side, graph, options, None if side == "memory" else limit))
                print(several[-1], file=sys.stderr, flush=True)
            if several[0]["sha256"] != several[-1]["sha256"]:
                raise InternalError("windows and memory gave different batches")
            rows += [_row(fanouts, each, several[0]) for each in several]
            found += [{"fanouts": fanouts, **each} for each in several]
        counted = presample(given.dir / "graph", given.dir, max(256 << 20, int(1.5e9 * edges / (16 << 25))))
    except TieringError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    heads = ["fanouts", "neighbor lists", "window, batches", "time, s per batch", "time / windows' time"]
    heads += ["processor, s per batch", "reads or faults per batch", "read, MB per batch", "peak memory, MB"]
    heads += ["batches measured"]
    machine = describe_machine()
    text = f"{show_machine(machine)}, memory of each side but the last {format_bytes(limit)}\n\n"
    text += markdown(heads, rows, left=2)
    text += f"\n\n`tiering score --method presample`, one epoch, {format_bytes(counted['limit'])}: "
    text += f"{counted['seconds']:.1f} s.\n"
    print(text)
    if given.docs is not None:
        write_json(given.docs / "benchmarks" / "adjacency.json", {"machine": machine, "runs": found, **counted})
        put(given.docs / "internals" / "adjacency.md", BEGIN, END, text)
    return 0
