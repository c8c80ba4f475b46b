"""Seconds to the first batch of an epoch that begins in its middle, against its begin and against skipping batches.

``python -m benchmarks resume LAYOUT [--memory SIZE] [--turns N]``: each turn opens the layout anew for every start,
with files of the ssd tier out of the page cache. A loader's first epoch chooses its window; its second one does not.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any, cast

import tiering
from benchmarks.loader import drop
from benchmarks.pages import describe_machine, markdown, show_machine, write_json
from tiering.errors import TieringError
from tiering.loader import TieredLayout
from tiering.text.units import parse_fanouts


def measure_first(batches: Iterator[Any], skipped: int) -> float:
    """Return the seconds to the first batch after `skipped` ones."""
    begin = time.perf_counter()
    next(islice(batches, skipped, None))
    seconds = time.perf_counter() - begin
    cast("Any", batches).close()
    return seconds


def run_turn(path: Path, fraction: float, skip: bool, options: dict[str, Any]) -> dict[str, Any]:
    """Return the start, and the seconds to the first batch after it in the first and in the second epoch of a loader.

    `skip`: the loader makes the batches before the start, too, and they are thrown away.
    """
    with cast("TieredLayout", tiering.open(path)) as layout:
        drop(layout.artifact.images)
        loader = layout.loader(**options)
        start = int(fraction * len(loader))
        begins = [loader.epoch(epoch, 0 if skip else start) for epoch in (0, 1)]
        seconds = [measure_first(batches, start if skip else 0) for batches in begins]
        lookahead = "none" if loader.lookahead is None else str(loader.lookahead.choice)
        return {"start": start, "skip": skip, "seconds": seconds, "batches": len(loader), "lookahead": lookahead}


def main(argv: Sequence[str]) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks resume", description=__doc__.splitlines()[0])
    parser.add_argument("layout", type=Path)
    parser.add_argument("--memory", default="auto", help="memory of the loader; see `tiering trace`")
    parser.add_argument("--fanouts", default="10,10")
    parser.add_argument("--batch-size", type=int, default=1000)
    parser.add_argument("--turns", type=int, default=5, metavar="N")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    given = parser.parse_args(argv)
    options = {"fanouts": parse_fanouts(given.fanouts), "batch_size": given.batch_size, "memory": given.memory}
    sides = [(0.0, False), (0.5, False), (0.9, False), (0.5, True), (0.9, True)]
    try:
        turns = [[run_turn(given.layout, *side, options) for side in sides] for _ in range(given.turns)]
    except TieringError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    heads = ["way", "start", "first epoch, s", "from, to", "second epoch, s", "from, to"]
    rows = []
    for side in zip(*turns, strict=True):
        seconds = list(zip(*(turn["seconds"] for turn in side), strict=True))
        figures = [f for of in seconds for f in (f"{median(of):.4f}", f"{min(of):.4f}, {max(of):.4f}")]
        rows.append(["batches thrown away" if side[0]["skip"] else "start=", str(side[0]["start"]), *figures])
    print(f"{show_machine(describe_machine())}\n\n{turns[0][0]['batches']} batches; {turns[0][0]['lookahead']}\n")
    print(markdown(heads, rows, left=1))
    if given.json:
        write_json(given.json, {"machine": describe_machine(), "options": options, "turns": turns})
    return 0
