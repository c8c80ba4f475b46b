"""Epochs that `tiering plan` predicts, then the same measured by the loader, each in a process held to its memory.

Graphs are R-MAT, their rows all on SSD in the order of wrpr. The disk is measured in the same run; plans and loaders
get its figures. Seconds are those in which the loader's reading thread is not idle; memory is what `--rows-in-memory`
says, of which Python and torch have what plans count for them, and the kernel holds the process to a tenth more, and
its programs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import tiering
from benchmarks.harness import Sizes
from benchmarks.inference import write_features
from benchmarks.memory_group import memory_group
from benchmarks.pages import describe_machine, markdown, put, show_machine, write_json
from benchmarks.stages import bench_folder, forget, run_tiering, write_edges
from tiering.errors import InternalError, TieringError
from tiering.evaluation.predict import RESIDENT
from tiering.memory import Budget
from tiering.pipeline.epochs import measured_disk
from tiering.readahead.disks import Disk
from tiering.text.units import format_bytes

_PROGRAM = Path(__file__).parent / "programs" / "planned.py"
GRAPHS = ((1_000_000, 10_000_000, (128, 100)), (300_000, 6_000_000, (256, 500)))
"""Nodes, edges, and columns of float32, of which 400 and 2000 bytes do not divide a page."""
SHARES = (0.1, 0.2, 0.3, 0.45, 0.6)
"""Sizes of memory: 0 is the least of a loader, 1 that in which all rows fit."""
AIMS = {"bytes": 0.05, "requests": 0.05, "seconds, median": 0.15, "seconds, worst": 0.3}
_EPOCHS = 6  # as many as are planned; the first fills the memory, and is not counted


def make_layout(sizes: Sizes, folder: Path, dim: int) -> None:
    """Write a graph in rank order and its layout with all rows on SSD."""
    data, graph, scores, ordered = (folder / name for name in ("data", "graph", "scores", "reordered"))
    if not ordered.exists():
        write_edges(sizes, data)
        write_features(data / "node_feat.npy", sizes.graph_nodes, dim)
        run_tiering(sizes, ["import", data, "--num-nodes", sizes.graph_nodes, "--random-train", "10%", "--out", graph])
        run_tiering(sizes, ["score", graph, "--method", "wrpr", "--out", scores])
        run_tiering(sizes, ["reorder", graph, "--scores", scores, "--out", ordered])
    run_tiering(sizes, ["layout", ordered, "--cpu", 0, "--ssd", folder / "ssd", "--out", folder / "layout"])


def measure(folder: Path, memory: int, options: dict[str, Any]) -> list[dict[str, float]]:
    """Return seconds, requests and bytes of reading of each epoch after the first, of a loader with so much memory."""
    settings = json.dumps({**options, "memory": memory, "resident": RESIDENT, "epochs": _EPOCHS})
    forget(path for path in (folder / "ssd").rglob("*") if path.is_file())
    with memory_group(int(1.1 * memory) + options["programs"]) as group:
        command = [sys.executable, str(_PROGRAM), str(folder / "layout"), settings]
        done = subprocess.run(command, capture_output=True, text=True, preexec_fn=group.enter)
    if done.returncode:
        raise InternalError(f"{format_bytes(memory)}: exit {done.returncode}: {done.stderr[-2000:]}")
    return list(json.loads(done.stdout.splitlines()[-1]))[1:]


def cells(sizes: Sizes, folder: Path, dim: int, options: dict[str, Any]) -> list[dict[str, Any]]:
    """Predict all sizes of memory of a graph, then measure them."""
    make_layout(sizes, folder, dim)
    model = folder / "disk.json"
    disk = measured_disk(folder, f"measured:{folder / 'ssd'}")
    assert isinstance(disk, Disk)
    model.write_text(json.dumps(disk.speed.as_dict()))
    how = {"fanouts": options["fanouts"], "batch_size": options["batch_size"], "disk": [str(model)]}
    ladder = tiering.plan_epochs(folder / "reordered", **how).epochs
    least, most = ladder[0].memory, ladder[-1].memory
    memories = [int(least + share * (most - least)) for share in SHARES]
    budgets = [Budget(memory, format_bytes(memory), RESIDENT) for memory in memories]
    planned = tiering.plan_epochs(folder / "reordered", **how, rows_in_memory=budgets).epochs
    found = []
    for memory, epoch in zip(memories, planned, strict=True):
        runs = measure(folder, memory, {**options, "ssd_model": str(model)})
        of = {name: [run[name] for run in runs] for name in ("seconds", "requests", "bytes")}
        said = {"seconds": epoch.seconds, "requests": epoch.requests, "bytes": epoch.bytes, "error": epoch.error}
        cell = {"nodes": sizes.graph_nodes, "row_bytes": 4 * dim, "memory": memory, "planned": said, "measured": of}
        print(json.dumps(cell), file=sys.stderr, flush=True)
        found.append({**cell, "disk": disk.speed.as_dict()})
    return found


def ratio(cell: dict[str, Any], name: str) -> float:
    """Return planned over measured, the median of epochs."""
    return float(cell["planned"][name] / median(cell["measured"][name]))


def table(found: Sequence[dict[str, Any]]) -> str:
    """Return a row for each cell, in Markdown."""
    heads = ["nodes", "row", "memory", "planned, s", "measured, s (spread)", "ratio", "requests", "bytes"]
    rows = []
    for cell in found:
        seconds = cell["measured"]["seconds"]
        rows.append([
            f"{cell['nodes']:,}", f"{cell['row_bytes']} B", format_bytes(cell["memory"]),
            f"{cell['planned']['seconds']:.3f} ± {cell['planned']['error']:.3f}",
            f"{median(seconds):.3f} ({min(seconds):.3f} to {max(seconds):.3f})",
            *(f"{ratio(cell, name):.3f}" for name in ("seconds", "requests", "bytes")),
        ])  # fmt: skip
    return markdown(heads, rows, left=0)


def verdicts(found: Sequence[dict[str, Any]]) -> list[str]:
    """Return what was aimed at, and what was measured."""
    off = {name: [abs(ratio(cell, name) - 1) for cell in found] for name in ("seconds", "requests", "bytes")}
    figures = {
        "bytes": max(off["bytes"]), "requests": max(off["requests"]),
        "seconds, median": median(off["seconds"]), "seconds, worst": max(off["seconds"]),
    }  # fmt: skip
    return [f"{name}: off by {100 * value:.1f} %, aim {100 * AIMS[name]:.0f} %" for name, value in figures.items()]


def main(argv: Sequence[str]) -> int:
    """Predict and measure all cells; print a table and what was aimed at."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks plan", description=__doc__)
    Sizes.options(parser, "threads", "seed", "folder")
    parser.add_argument("--small", action="store_true", help="one smaller graph, one kind of rows")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument("--docs", type=Path, metavar="DIR", help="write the table into internals/plan.md there")
    given = parser.parse_args(argv)
    sizes, found = Sizes.from_options(given), list[dict[str, Any]]()
    options: dict[str, Any] = {"fanouts": [10, 10], "batch_size": 256 if given.small else 1024}
    graphs = [(200_000, 2_000_000, (256,))] if given.small else GRAPHS
    try:
        empty = subprocess.run([sys.executable, str(_PROGRAM)], capture_output=True, text=True, check=True).stdout
        options |= json.loads(empty)
        for nodes, edges, dims in graphs:
            for dim in dims:
                with bench_folder(sizes) as folder:
                    found += cells(replace(sizes, stage_nodes=nodes, edges=edges), folder, dim, options)
    except TieringError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    machine = describe_machine()
    text = f"{show_machine(machine)}\n\n{table(found)}\n\n" + "\n".join(f"- {line}" for line in verdicts(found))
    print(text)
    if given.docs:
        put(given.docs / "internals" / "plan.md", "<!-- measured -->", "<!-- end -->", text)
    if given.json:
        write_json(given.json, {"machine": machine, "cells": found})
    return 0
