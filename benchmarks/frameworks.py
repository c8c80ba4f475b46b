"""Epochs of the loaders for PyG and DGL, the native loader and the frameworks' own, each in a process of its own.

`features` fit the memory, so that the frameworks' own can run at all.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import tiering
from benchmarks.loader import table_of
from benchmarks.pages import describe_machine, show_machine, write_json
from benchmarks.programs.framework_epoch import SIDES
from tiering.errors import InternalError, TieringError
from tiering.loader.layout import TieredLayout
from tiering.text.units import format_bytes, parse_fanouts

_PROGRAM = Path(__file__).parent / "programs" / "framework_epoch.py"
_NATIVE = {"native, for PyG": "native, for PyG", "pyg_loader": "native, for PyG",
           "NodeLoader over our stores": "native, for PyG", "PyG's NeighborLoader": "native, for PyG"}  # fmt: skip
"""The side whose batches each side's are like, by default ``native, for DGL``."""


def epochs(side: str, layout: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Run one process of a side; return its output."""
    command = [sys.executable, str(_PROGRAM), side, str(layout), json.dumps(options)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise InternalError(f"{side}: exit {done.returncode}: {done.stderr[-2000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main(argv: Sequence[str]) -> int:
    """Run the sides by turns, print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks frameworks", description=__doc__)
    parser.add_argument("layout", type=Path, help="layout with one type of nodes and one relation")
    parser.add_argument("--fanouts", default="10,10")
    parser.add_argument("--batch-size", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=3, help="the first is not counted")
    parser.add_argument("--workers", type=int, default=2, help="threads or processes that sample")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sides", default="/".join(SIDES), help="some of these, separated by /")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    given = parser.parse_args(argv)
    options = {
        "fanouts": parse_fanouts(given.fanouts), "batch_size": given.batch_size, "epochs": given.epochs,
        "workers": given.workers,
    }  # fmt: skip
    try:
        with tiering.open(given.layout) as layout:
            assert isinstance(layout, TieredLayout)
            options["table"] = str(table_of(layout))
        found: dict[str, list[dict[str, Any]]] = {side: [] for side in given.sides.split("/")}
        for _ in range(given.repeats):
            for side, runs in found.items():
                runs.append(epochs(side, given.layout, options))
                print(f"{side}: {runs[-1]}", file=sys.stderr, flush=True)
    except TieringError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    machine = describe_machine()
    print(show_machine(machine) + "\n")
    print("| loader | time, s per batch | time / native loader's | peak memory |\n|---|---:|---:|---:|")
    for side, runs in found.items():
        own = [min(run["seconds"][1:]) for run in runs]
        base = [min(run["seconds"][1:]) for run in found.get(_NATIVE.get(side, "native, for DGL"), runs)]
        times = median(mine / other for mine, other in zip(own, base, strict=True))
        peak = format_bytes(median(run["peak"] for run in runs))
        print(f"| {side} | {median(own):.5f} | {times:.2f} | {peak} |")
    if given.json:
        write_json(given.json, {"machine": machine, "options": options, "sides": found})
    return 0
