"""Stages and kernels of this checkout against those of another, paired: `python -m benchmarks stages --against DIR`.

Each side makes its own artifacts with its own commands, in a process of its own Python; inputs are the same files. A
ratio above 1 means that this checkout is faster. The processors' time (user and system, all threads) is what to go by
on a machine that does other things too; a row where it is more than 5 % worse, and worse in every turn, says so.

`--no-verify` compares this checkout's stages without the comparing of checksums ("here") with those that compare
("there"): ratios are what verification costs. `--tasks N` compares its steps as tasks of N parts, side by side in
threads, with those of one process: ratios are what cutting costs.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.harness import TOUCHED_PER_EDGE, Comparison, Sizes, Spent, Work, compare
from benchmarks.pages import describe_machine, markdown, spread, write_json
from benchmarks.stages import bench_folder, write_edges, write_rows
from benchmarks.workers import Worker
from tiering import native
from tiering.errors import CapabilityError, MissingError, TieringError

LOSS = 0.95
"""Ratio of processors' time below which a row is marked, if no turn was better than the other side's."""
ENOUGH = 3
"""Turns below which no row is marked."""
_SAMPLING = "--fanouts 10,10 --batch-size 1000"
_TIERS = "--gpu 10% --cpu 40% --ssd {out}-ssd --out {out}"

_CACHE = "--split|--adjacency-cache auto --scores {here}/scores"
# `{here}` is the side's folder, `{data}` the inputs, `{out}` what is made and removed.
SETUP = (
    "import {data}/plain --out {here}/graph --checksum-features",
    "import {data}/rich --out {here}/rich",
    f"score {{here}}/graph --method hybrid {_SAMPLING} --out {{here}}/scores",
    "score {here}/rich --method wrpr --out {here}/rich-scores",
    "reorder {here}/graph --scores {here}/scores --out {here}/ordered",
    "reorder {here}/graph --scores {here}/scores --out {here}/ranked --features",
    "layout {here}/ordered --cpu 50% --ssd {here}/ssd --out {here}/layout",
)
"""Commands that make what the rows read, once for each side."""
COMMANDS = {
    "import": "import {data}/plain --out {out}",
    "import, edge data": "import {data}/rich --out {out}",
    "score degree": "score {here}/graph --method degree --out {out}",
    "score rpr": "score {here}/graph --method rpr --out {out}",
    "score wrpr": "score {here}/graph --method wrpr --out {out}",
    "score vip": f"score {{here}}/graph --method vip {_SAMPLING} --out {{out}}",
    "score presample": f"score {{here}}/graph --method presample {_SAMPLING} --out {{out}}",
    "score hybrid": f"score {{here}}/graph --method hybrid {_SAMPLING} --out {{out}}",
    "reorder": "reorder {here}/graph --scores {here}/scores --out {out}",
    "reorder --features": "reorder {here}/graph --scores {here}/scores --features --out {out}",
    "reorder, edge data": "reorder {here}/rich --scores {here}/rich-scores --out {out}",
    "layout": f"layout {{here}}/ordered {_TIERS}",
    "layout of ranked rows": f"layout {{here}}/ranked {_TIERS}",
    "layout, adjacency cache": f"layout {{here}}/ordered {_TIERS} {_CACHE}",
    "evaluate": f"evaluate {{here}}/graph --scores {{here}}/scores {_SAMPLING} --epochs 1",
    "check --full": "check {here}/ordered --full",
}
"""Rows that run a command; with another memory those of `OUT_OF_CORE`."""
OUT_OF_CORE = (
    "import", "import, edge data", "score wrpr", "score vip", "reorder", "reorder, edge data", "layout",
)  # fmt: skip
WORKS = {
    **{
        f"kernel {kernel}": f"kernel {kernel}"
        for kernel in ("coo_to_csc", "out_degrees", "sort_by_score", "relabel", "reverse_pagerank",
                       "inclusion_probability")
    },
    "gather, cpu tier": "gather {here}/layout cpu",
    "gather, ssd tier": "gather {here}/layout ssd",
    "sample uniform": "sample {here}/graph uniform 10,10,10 20",
    "sample weighted": "sample {here}/rich weighted 10,10 5",
    "sample pinsage": "sample {here}/graph pinsage 10,10 2",
    "sample ladies": "sample {here}/graph ladies 2000,4000 5",
}  # fmt: skip
"""Rows of works that are prepared once, by `prepare` in `benchmarks/programs/checkout.py`, and run in each turn."""
VERIFYING: tuple[str, ...] = ("score", "reorder", "layout")
"""Commands that have --no-verify."""
CUT = ("import", "score", "reorder", "layout")
"""Commands whose work tasks share."""
TOUCHED_PER_EDGE_BY_TASKS = 128
"""Task output lies in the page cache for a while."""


def rows(small: str) -> dict[str, str]:
    """Return the works of all rows by name; `small` is the memory of those that run out of core."""
    less = {f"{name}, {small}": f"{COMMANDS[name]} --memory {small}" for name in OUT_OF_CORE}
    return COMMANDS | less | WORKS


def write_inputs(sizes: Sizes, data: Path) -> None:
    """Write the R-MAT graph with rows and training nodes; and again with weights and types along its edges."""
    rng = np.random.default_rng(0)
    plain, rich, nodes = data / "plain", data / "rich", sizes.nodes
    write_edges(sizes, plain)
    write_rows(plain / "node_feat.npy", nodes, sizes.row_bytes)
    np.save(plain / "train_idx.npy", np.sort(rng.choice(nodes, max(1, nodes // 100), replace=False)))
    (plain / "num_nodes.txt").write_text(f"{nodes}\n")
    rich.mkdir()
    for name in ("edge_index.npy", "train_idx.npy", "num_nodes.txt"):
        (rich / name).hardlink_to(plain / name)
    np.save(rich / "edge_weight.npy", 1 - rng.random(sizes.edges, dtype=np.float32))
    np.save(rich / "edge_type.npy", rng.integers(0, 5, sizes.edges).astype(np.int32))


class Checkout:
    """One side: its interpreter, its folder."""

    def __init__(self, python: Path, folder: Path, data: Path, sizes: Sizes, options: Sequence[str] = ()) -> None:
        self._python, self._folder, self._data, self._options = python, folder, data, options
        self._task = json.dumps({"scale": sizes.scale, "edges": sizes.edges, "threads": sizes.threads})
        self._threads = ["--threads", str(sizes.threads)]
        folder.mkdir()

    def start(self) -> Worker:
        """Start a fresh process, whose memory nothing else has touched."""
        return Worker(self._python, "checkout.py", self._task)

    def prepare(self) -> str:
        """Make what the rows read; the side's name."""
        with self.start() as worker:
            for command in SETUP:
                worker.turn("command", *self._filled(command), *self._threads)
            return worker.name

    def work(self, name: str, line: str, worker: Worker) -> Work:
        """Return a turn of a row, after a first one that does not count."""
        words = self._filled(line)
        if name in WORKS:
            worker.turn("prepare", *words)
            return worker.work("run", words[0])
        words += [*([] if words[0] == "check" else self._threads), *self._options]  # the last of an option counts

        def turn() -> Spent:
            for place in self._folder.glob("out*"):
                shutil.rmtree(place)
            return worker.turn("command", *words)

        turn()
        return turn

    def _filled(self, line: str) -> list[str]:
        return [word.format(here=self._folder, data=self._data, out=self._folder / "out") for word in line.split()]


def measure(
    sizes: Sizes,
    other: Path | None,
    chosen: Sequence[str],
    options: Sequence[str] = (),
    having: Sequence[str] = (),
    touched: int = TOUCHED_PER_EDGE,
) -> Iterator[Comparison]:
    """Measure each row that has one of `chosen` in its name (all rows if none), as it is done.

    Without an `other` interpreter: rows of commands that are `having` the options, against themselves without these.
    """
    wanted = {
        name: line for name, line in rows(sizes.memory).items() if not chosen or any(part in name for part in chosen)
    }
    if other is None:
        other = Path(sys.executable)
        wanted = {n: line for n, line in wanted.items() if n not in WORKS and line.split()[0] in having}
    with bench_folder(sizes) as folder:
        write_inputs(sizes, folder / "data")
        ours = Checkout(Path(sys.executable), folder / "ours", folder / "data", sizes, options)
        theirs = Checkout(other, folder / "theirs", folder / "data", sizes)
        names = [side.prepare() for side in (ours, theirs)]
        for name, line in wanted.items():
            with ExitStack() as stack:
                mine = ours.work(name, line, stack.enter_context(ours.start()))
                peer: Work | str
                try:
                    peer = theirs.work(name, line, stack.enter_context(theirs.start()))
                except CapabilityError as error:
                    peer = str(error)
                result = compare(
                    name, mine, {names[1]: peer}, amount=sizes.edges, unit="edges", repeats=sizes.repeats,
                    parameters={"scale": sizes.scale, "edges": sizes.edges, "threads": sizes.threads},
                    memory=touched * sizes.edges, warm_up=False,
                )  # fmt: skip
                result.ours.name = names[0]
                yield result


def cells(result: dict[str, Any]) -> list[str]:
    """Return a row of the table: both sides' processors' time and wall time, and the ratios."""
    (peer,) = result["peers"]
    mine = [f"{median(result['cpu_seconds']):.3f}", f"{median(result['seconds']):.3f}"]
    if "cpu_ratio" not in peer:
        return [result["name"], mine[0], "-", "-", mine[1], "-", "-", peer["note"]]
    cpu = [mine[0], f"{median(peer['cpu_seconds']):.3f}", spread(peer, "cpu_ratio")]
    wall = [mine[1], f"{median(peer['seconds']):.3f}", spread(peer)]
    lost = peer["cpu_ratio"] < LOSS and peer["cpu_ratio_max"] < 1 and len(peer["seconds"]) >= ENOUGH
    return [result["name"], *cpu, *wall, "slower" if lost else ""]


def find_python(other: Path) -> Path:
    """Find the interpreter of a built checkout, or the one that is named itself; `MissingError` if there is none."""
    python = other / ".venv" / "bin" / "python" if other.is_dir() else other
    if not python.is_file():
        raise MissingError(f"--against {other}: expected a checkout with .venv/bin/python in it (`make test` makes it)")
    return python


def main(argv: Sequence[str]) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks stages", description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*", metavar="PART", help="only rows with one of these in their names")
    parser.add_argument("--against", type=Path, metavar="DIR", help="another checkout, built")
    parser.add_argument("--no-verify", action="store_true", help="next to this checkout without comparing checksums")
    parser.add_argument(
        "--tasks", type=int, metavar="N", help="this checkout's steps cut into N parts, against one process"
    )
    Sizes.options(parser, "scale", "edges", "repeats", "threads", "memory", "folder")
    parser.set_defaults(scale=20, edges=12 << 20, memory="320MiB", row_bytes=512)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    given = parser.parse_args(argv)
    sizes, results = Sizes.from_options(given), []
    if [given.against is None, not given.no_verify, given.tasks is None].count(False) != 1:
        parser.error("expected one of --against DIR, --no-verify and --tasks N")
    options, having, touched = ["--no-verify"] if given.no_verify else [], VERIFYING, TOUCHED_PER_EDGE
    if given.tasks is not None:
        tasks = ["--executor", "local", "--shards", given.tasks, "--workers", sizes.threads, "--threads", 1]
        options, having, touched = list(map(str, tasks)), CUT, TOUCHED_PER_EDGE_BY_TASKS
    try:
        other = None if given.against is None else find_python(given.against)
        for result in measure(sizes, other, given.rows, options, having, touched):
            results.append(result.to_json())
            print("  ".join(filter(None, cells(results[-1]))), file=sys.stderr, flush=True)
    except TieringError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    heads = ["", "CPU s here", "there", "ratio", "wall s here", "there", "ratio", ""]
    print(markdown(heads, [cells(result) for result in results], left=1))
    if given.json:
        write_json(given.json, {"machine": describe_machine(), "native": native.build_info(), "results": results})
    return 0
