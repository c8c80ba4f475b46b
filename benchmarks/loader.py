"""Epochs of the loader alone against memory maps of the same rows, each in a process of its own in the same memory."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from typing import Any, cast

import numpy as np

import tiering
from benchmarks.memory_group import memory_group
from benchmarks.pages import describe_machine, show_machine, write_json
from tiering.errors import InternalError, TieringError
from tiering.loader.layout import TieredLayout
from tiering.loader.tables.gather import TieredFeatures
from tiering.text.units import parse_bytes, parse_fanouts

SIDES = ("ours", "tiers", "memmap", "memmap, 16 threads", "memory")
"""The loader in its memory; the same without look-ahead; ``np.memmap[ids]`` as people write it; the best of memory
maps; all rows in memory, without a limit."""
_PROGRAM = Path(__file__).parent / "programs" / "epoch.py"
_CHUNK = 1 << 18


def table_of(layout: TieredLayout) -> Path:
    """Write the layout's only feature table by rank in one file, next to its first stripe file or to the layout."""
    (node_type,), images, path = layout.feature_types, layout.artifact.images, layout.artifact.path
    path = (images[0].parent if images else path.parent / f"{path.name}.rows") / "rows-by-rank.bin"
    path.parent.mkdir(exist_ok=True)
    table = cast(TieredFeatures, layout.features(node_type))
    if not path.exists() or path.stat().st_size != len(table) * table.row_bytes:
        with path.open("wb") as file:
            for start in range(0, len(table), _CHUNK):
                table.gather_numpy(np.arange(start, min(len(table), start + _CHUNK))).tofile(file)
            os.fsync(file.fileno())
    return path


def drop(files: Sequence[Path]) -> None:
    """Take files out of the page cache."""
    for path in files:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def warm(files: Sequence[Path]) -> None:
    """Read files into the page cache."""
    for path in files:
        with path.open("rb") as file:
            while file.read(1 << 24):
                pass


def epoch(side: str, layout: Path, options: dict[str, Any], limit: int | None) -> dict[str, Any]:
    """Run one process of a side, in a control group of `limit` bytes; return its output."""
    with memory_group(limit) if limit else nullcontext() as group:
        done = subprocess.run(
            [sys.executable, str(_PROGRAM), side, str(layout), json.dumps(options)],
            capture_output=True, text=True, preexec_fn=group.enter if group else None,
        )  # fmt: skip
    if done.returncode:
        raise InternalError(f"{side}: exit {done.returncode}: {done.stderr[-2000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main(argv: Sequence[str]) -> int:
    """Run the sides by turns, print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks loader", description=__doc__)
    parser.add_argument("layout", type=Path, help="layout with one type of nodes that has features")
    parser.add_argument("--memory", default="4GiB", help="what each process gets; the kernel holds it to a tenth more")
    parser.add_argument("--fanouts", default="10,10")
    parser.add_argument("--batch-size", type=int, default=1000)
    parser.add_argument("--batches", type=int, default=0, help="of an epoch, at most; 0: all")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=60, help="of an epoch, at most")
    parser.add_argument("--train", action="store_true", help="GraphSAGE on the host after each batch")
    parser.add_argument("--cached", action="store_true", help="begin with the rows in the page cache, not without")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--sides", default=",".join(s.replace(", ", "/") for s in SIDES), help="some of these")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    given = parser.parse_args(argv)
    sides = [side.replace("/", ", ") for side in given.sides.split(",")]
    memory = parse_bytes(given.memory, "--memory")
    options = {
        "fanouts": parse_fanouts(given.fanouts), "batch_size": given.batch_size, "seed": 0, "memory": given.memory,
        "batches": given.batches, "epochs": given.epochs, "seconds": given.seconds,
        "threads": 16, "train": given.train,
    }  # fmt: skip
    try:
        with tiering.open(given.layout) as layout:
            assert isinstance(layout, TieredLayout)
            table = table_of(layout)
            files = [table, *layout.artifact.images]
        found: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
        for _ in range(given.repeats):
            for side in sides:
                (warm if given.cached else drop)(files)
                limit = None if side == "memory" else int(1.1 * memory)
                found[side].append(epoch(side, given.layout, {**options, "table": str(table)}, limit))
                print(f"{side}: {found[side][-1]}", file=sys.stderr, flush=True)
    except TieringError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    machine = describe_machine()
    print(show_machine(machine) + "\n")
    heads = ["side", "made, s", "first batch, s", "first epoch, s a batch", "later epochs, s a batch"]
    heads += ["of it training", "times ours, later"]
    print(f"| {' | '.join(heads)} |\n|---|{'---:|' * (len(heads) - 1)}")
    ours = median(run["epochs"][-1] for run in found[sides[0]])
    for side, runs in found.items():
        made, first = median(run["made"] for run in runs), median(run["first"][0] for run in runs)
        begin, later = (median(run["epochs"][k] for run in runs) for k in (0, -1))
        trained = median(run["training"][-1] for run in runs)
        print(f"| {side} | {made:.2f} | {first:.2f} | {begin:.5f} | {later:.5f} | {trained:.5f} | {later / ours:.2f} |")
    if given.json:
        write_json(given.json, {"machine": machine, "options": options, "sides": found})
    return 0
