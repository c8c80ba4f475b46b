"""Start-up of the command line against another checkout's, in turn: `python -m benchmarks startup --against DIR`.

Each command is a process of its own, on a graph of 100 nodes; what is compared is its processors' time, user and
system, which other work on the machine disturbs less than wall time. Bytecode is compiled by a first turn.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.against import find_python
from benchmarks.pages import describe_machine, markdown, show_machine, write_json
from tiering.errors import InternalError, TieringError

COMMANDS = {
    "score --help": "score --help", "--help": "--help", "import": "import data --out {side}-made --force",
    "info": "info graph", "score": "score graph --out {side}-made --force",
    "reorder": "reorder graph --scores scores --out {side}-made --force",
    "layout": "layout reordered --cpu 50% --ssd {side}-ssd --out {side}-made --force",
}  # fmt: skip


def write_inputs(folder: Path) -> None:
    """Write a dataset of 100 nodes."""
    random, data = np.random.default_rng(0), folder / "data"
    data.mkdir()
    np.save(data / "edge_index.npy", random.integers(0, 100, (2, 500)))
    np.save(data / "node_feat.npy", random.random((100, 8), dtype=np.float32))
    np.save(data / "train_idx.npy", np.arange(10))


def spend(python: Path, folder: Path, line: str) -> tuple[float, float]:
    """Run a command; return the processors' time and the wall time in seconds."""
    command = [str(python), "-m", "tiering.cli", *line.split()]
    begin = time.perf_counter()
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    with process.stderr or nullcontext() as stream:
        said = stream.read() if stream else ""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise InternalError(f"{line}: {said.strip()}")
    return usage.ru_utime + usage.ru_stime, time.perf_counter() - begin


def main(argv: Sequence[str]) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks startup", description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*", metavar="PART", help="only rows with one of these in their names")
    parser.add_argument("--against", type=Path, metavar="DIR", required=True, help="another checkout, built")
    parser.add_argument("--repeats", type=int, default=9, metavar="N", help="turns; the first does not count")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    given = parser.parse_args(argv)
    chosen = {n: line for n, line in COMMANDS.items() if not given.rows or any(part in n for part in given.rows)}
    results: list[dict[str, Any]] = []
    heads = ["", "CPU s here", "there", "here / there", "wall s here", "there"]
    try:
        sides = {"ours": Path(sys.executable), "theirs": find_python(given.against)}
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_inputs(folder)
            for line in ("import data --out graph", "score graph --out scores",
                         "reorder graph --scores scores --out reordered"):  # fmt: skip
                spend(sides["theirs"], folder, line)
            for row, line in chosen.items():
                turns = [
                    {side: spend(python, folder, line.format(side=side)) for side, python in sides.items()}
                    for _ in range(given.repeats + 1)
                ][1:]
                ratio = median(turn["ours"][0] / turn["theirs"][0] for turn in turns)
                cpu, wall = ([median(turn[side][k] for turn in turns) for side in sides] for k in (0, 1))
                results.append({"name": row, "cpu_seconds": cpu, "seconds": wall, "cpu_ratio": ratio})
    except TieringError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    cells = [[r["name"], *map("{:.3f}".format, (*r["cpu_seconds"], r["cpu_ratio"], *r["seconds"]))] for r in results]
    print(show_machine(describe_machine()) + "\n")
    print(markdown(heads, cells, left=1))
    if given.json:
        write_json(given.json, {"machine": describe_machine(), "results": results})
    return 0
