"""Stages and kernels of this checkout beside those of another, paired: `python -m benchmarks stages --against DIR`.

Each side makes its own artifacts with its own commands, in a process of its own Python; inputs are the same files. A
ratio above 1 means that this checkout is faster. The processors' time (user and system, all threads) is what to go by
on a machine that does other things too; a row where it is more than 5 % worse, and worse in every turn, says so.

`--no-verify` compares this checkout's stages without the comparing of checksums ("here") with those that compare
("there"): ratios are what verification costs.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.harness import TOUCHED_PER_EDGE, Comparison, Sizes, Spent, Work, compare
from benchmarks.machine import describe_machine
from benchmarks.pages import markdown, spread
from benchmarks.stages import bench_folder, write_edges, write_rows
from benchmarks.workers import Worker
from tiering import native
from tiering.errors import CapabilityError, MissingError, TieringError

HERE = Path(__file__).resolve().parents[1]
LOSS = 0.95
"""Ratio of processors' time below which a row is marked, if no turn was better than the other side's."""
ENOUGH = 3
"""Turns below which no row is marked."""
SAMPLING = ("--fanouts", "10,10", "--batch-size", "1000")
METHODS = {"degree": (), "rpr": (), "wrpr": (), "vip": SAMPLING, "presample": SAMPLING, "hybrid": SAMPLING}
KERNELS = ("coo_to_csc", "transpose", "out_degrees", "sort_by_score", "relabel_csc", "reverse_pagerank",
           "inclusion_probability")  # fmt: skip
SAMPLERS = {"uniform": ("10,10,10", 20), "weighted": ("10,10", 5), "pinsage": ("10,10", 2), "ladies": ("2000,4000", 5)}
VERIFYING = ("score", "transpose", "reorder", "layout")
"""Commands that have --no-verify."""
_ROW_BYTES = 512
_OUT = "{out}"


@dataclass(frozen=True)
class Case:
    """One row: a command, or a work that is prepared once and run in each turn."""

    name: str
    command: tuple[str, ...] = ()
    """Arguments; ``{here}`` is the side's folder, ``{data}`` the inputs, ``{out}`` what is made and removed."""
    work: tuple[str, ...] = ()
    """Arguments of ``prepare`` in `benchmarks/programs/checkout.py`."""


def cases(small: str) -> Iterator[Case]:
    """All rows; `small` is the memory of those that run out of core."""
    graph, scores, ordered = "{here}/graph", "{here}/scores", "{here}/ordered"
    within = ("--memory", small)
    yield Case("import", ("import", "{data}/plain", "--out", _OUT))
    yield Case(f"import, {small}", ("import", "{data}/plain", "--out", _OUT, *within))
    yield Case("import, edge data", ("import", "{data}/rich", "--out", _OUT))
    yield Case(f"import, edge data, {small}", ("import", "{data}/rich", "--out", _OUT, *within))
    yield Case("transpose", ("transpose", graph, "--out", _OUT))
    yield Case(f"transpose, {small}", ("transpose", graph, "--out", _OUT, *within))
    for method, options in METHODS.items():
        yield Case(f"score {method}", ("score", graph, "--method", method, *options, "--out", _OUT))
    for method in ("wrpr", "vip"):
        yield Case(
            f"score {method}, {small}", ("score", graph, "--method", method, *METHODS[method], "--out", _OUT, *within)
        )
    reorder = ("reorder", graph, "--scores", scores, "--out", _OUT)
    yield Case("reorder", reorder)
    yield Case(f"reorder, {small}", (*reorder, *within))
    yield Case("reorder --features", (*reorder, "--features"))
    yield Case("reorder, edge data", ("reorder", "{here}/rich", "--scores", "{here}/rich-scores", "--out", _OUT))
    yield Case(
        f"reorder, edge data, {small}",
        ("reorder", "{here}/rich", "--scores", "{here}/rich-scores", "--out", _OUT, *within),
    )
    layout = ("layout", ordered, "--gpu", "10%", "--cpu", "40%", "--ssd", "{out}-ssd", "--out", _OUT)
    yield Case("layout", layout)
    yield Case(f"layout, {small}", (*layout, *within))
    yield Case("layout of ranked rows", ("layout", "{here}/ranked", *layout[2:]))
    yield Case("layout, adjacency cache", (*layout, "--split|--adjacency-cache", "auto", "--scores", scores))
    yield Case("evaluate", ("evaluate", graph, "--scores", scores, *SAMPLING, "--epochs", "1"))
    yield Case("check --full", ("check", ordered, "--full"))
    for kernel in KERNELS:
        yield Case(f"kernel {kernel}", work=("kernel", kernel))
    for tier in ("cpu", "ssd"):
        yield Case(f"gather, {tier} tier", work=("gather", "{here}/layout", tier))
    for sampler, (fanouts, batches) in SAMPLERS.items():
        source = "{here}/rich" if sampler == "weighted" else graph
        yield Case(f"sample {sampler}", work=("sample", source, sampler, fanouts, str(batches)))


def setup(threads: int) -> list[list[str]]:
    """Commands that make what the rows read, once for each side."""
    more = ["--threads", str(threads)]
    return [
        ["import", "{data}/plain", "--out", "{here}/graph", "--checksum-features", *more],
        ["import", "{data}/rich", "--out", "{here}/rich", *more],
        ["score", "{here}/graph", "--method", "hybrid", *SAMPLING, "--out", "{here}/scores", *more],
        ["score", "{here}/rich", "--method", "wrpr", "--out", "{here}/rich-scores", *more],
        ["reorder", "{here}/graph", "--scores", "{here}/scores", "--out", "{here}/ordered", *more],
        ["reorder", "{here}/graph", "--scores", "{here}/scores", "--out", "{here}/ranked", "--features", *more],
        ["layout", "{here}/ordered", "--cpu", "50%", "--ssd", "{here}/ssd", "--out", "{here}/layout", *more],
    ]


def write_inputs(sizes: Sizes, data: Path) -> None:
    """The R-MAT graph with rows and training nodes; and again with weights and types along its edges."""
    rng = np.random.default_rng(0)
    edges = write_edges(sizes, data / "plain")
    write_rows(data / "plain" / "node_feat.npy", sizes.nodes, _ROW_BYTES)
    np.save(
        data / "plain" / "train_idx.npy", np.sort(rng.choice(sizes.nodes, max(1, sizes.nodes // 100), replace=False))
    )
    (data / "plain" / "num_nodes.txt").write_text(f"{sizes.nodes}\n")
    (data / "rich").mkdir()
    for name in ("edge_index.npy", "train_idx.npy", "num_nodes.txt"):
        (data / "rich" / name).hardlink_to(data / "plain" / name)
    assert edges.exists()
    np.save(data / "rich" / "edge_weight.npy", 1 - rng.random(sizes.edges, dtype=np.float32))
    np.save(data / "rich" / "edge_type.npy", rng.integers(0, 5, sizes.edges).astype(np.int32))


class SideOfCheckout:
    """One checkout: its interpreter, its folder."""

    def __init__(self, python: Path, folder: Path, data: Path, sizes: Sizes, *options: str) -> None:
        self._python, self._folder, self._data, self._options = python, folder, data, options
        self._task = json.dumps({"scale": sizes.scale, "edges": sizes.edges, "threads": sizes.threads})
        self._threads = str(sizes.threads)
        folder.mkdir()

    def start(self) -> Worker:
        """A fresh process, whose memory nothing else has touched."""
        return Worker(self._python, "checkout.py", self._task)

    def prepare(self) -> str:
        """Make what the rows read; the side's name."""
        with self.start() as worker:
            for command in setup(int(self._threads)):
                worker.turn("command", *self._filled(command))
            return worker.name

    def work(self, case: Case, worker: Worker) -> Work:
        """A turn of a row, after a first one that does not count."""
        if case.work:
            worker.turn("prepare", *self._filled(case.work))
            return worker.work("run", case.work[0])
        threads = [] if case.command[0] == "check" else ["--threads", self._threads]
        command = self._filled([*case.command, *threads, *self._options])

        def turn() -> Spent:
            for place in self._folder.glob("out*"):
                shutil.rmtree(place)
            return worker.turn("command", *command)

        turn()
        return turn

    def _filled(self, arguments: Sequence[str]) -> list[str]:
        places = {"here": str(self._folder), "data": str(self._data), "out": str(self._folder / "out")}
        return [argument.format(**places) for argument in arguments]


def measure(sizes: Sizes, other: Path | None, chosen: Sequence[str], small: str) -> Iterator[Comparison]:
    """Each row that has one of `chosen` in its name (all rows if none), as it is done.

    Without an `other` interpreter: rows that compare checksums, beside themselves with ``--no-verify``.
    """
    rows = [case for case in cases(small) if not chosen or any(part in case.name for part in chosen)]
    options = []
    if other is None:
        other, options = Path(sys.executable), ["--no-verify"]
        rows = [case for case in rows if case.command and case.command[0] in VERIFYING and small not in case.command]
    with bench_folder(sizes) as folder:
        write_inputs(sizes, folder / "data")
        ours = SideOfCheckout(Path(sys.executable), folder / "ours", folder / "data", sizes, *options)
        theirs = SideOfCheckout(other, folder / "theirs", folder / "data", sizes)
        names = [side.prepare() for side in (ours, theirs)]
        for case in rows:
            with ExitStack() as stack:
                works: list[Work | str] = []
                for side in (ours, theirs):
                    worker = stack.enter_context(side.start())
                    try:
                        works.append(side.work(case, worker))
                    except CapabilityError as error:
                        works.append(str(error))
                mine, peer = works
                if isinstance(mine, str):
                    raise CapabilityError(mine)
                result = compare(
                    case.name, mine, {names[1]: peer}, amount=sizes.edges, unit="edges", repeats=sizes.repeats,
                    parameters={"scale": sizes.scale, "edges": sizes.edges, "threads": sizes.threads},
                    memory=TOUCHED_PER_EDGE * sizes.edges, warm_up=False,
                )  # fmt: skip
                result.ours.name = names[0]
                yield result


def row(result: dict[str, Any]) -> list[str]:
    """A row of the table: both sides' processors' time and wall time, and the ratios."""
    (peer,) = result["peers"]
    mine = [f"{median(result['cpu_seconds']):.3f}", f"{median(result['seconds']):.3f}"]
    if "cpu_ratio" not in peer:
        return [result["name"], mine[0], "-", "-", mine[1], "-", "-", peer["note"]]
    cpu = [mine[0], f"{median(peer['cpu_seconds']):.3f}", spread(peer, "cpu_ratio")]
    wall = [mine[1], f"{median(peer['seconds']):.3f}", spread(peer)]
    lost = peer["cpu_ratio"] < LOSS and peer["cpu_ratio_max"] < 1 and len(peer["seconds"]) >= ENOUGH
    return [result["name"], *cpu, *wall, "slower" if lost else ""]


def find_python(other: Path) -> Path:
    """The interpreter of a built checkout, or the one that is named itself.

    Raises
    ------
    MissingError
        If there is none.
    """
    python = other / ".venv" / "bin" / "python" if other.is_dir() else other
    if not python.is_file():
        raise MissingError(f"--against {other}: expected a checkout with .venv/bin/python in it (`make test` makes it)")
    return python


def main(argv: Sequence[str]) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks stages", description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*", metavar="PART", help="only rows with one of these in their names")
    parser.add_argument("--against", type=Path, metavar="DIR", help="another checkout, built")
    parser.add_argument("--no-verify", action="store_true", help="beside this checkout without comparing checksums")
    parser.add_argument("--scale", type=int, default=20, help="the R-MAT graph has 2**SCALE nodes")
    parser.add_argument("--edges", type=int, default=12 << 20)
    parser.add_argument("--repeats", type=int, default=5, help="turns of each side")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--memory", default="320MiB", help="of the rows that run out of core")
    parser.add_argument("--dir", type=Path, default=Path(), help="where graphs lie for a while")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    given = parser.parse_args(argv)
    sizes = Sizes(scale=given.scale, edges=given.edges, repeats=given.repeats, threads=given.threads, folder=given.dir)
    results = []
    if (given.against is None) != given.no_verify:
        parser.error("expected --against DIR or --no-verify")
    try:
        for result in measure(sizes, given.against and find_python(given.against), given.rows, given.memory):
            results.append(result.to_json())
            print("  ".join(filter(None, row(results[-1]))), file=sys.stderr, flush=True)
    except TieringError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    heads = ["", "CPU s here", "there", "ratio", "wall s here", "there", "ratio", ""]
    print(markdown(heads, [row(result) for result in results], left=1))
    if given.json:
        document = {"machine": describe_machine(), "native": native.build_info(), "results": results}
        given.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0
