"""Reading ahead: measured seconds against every simulated policy, the planner's foresight, and GNNDrive's setting.

``python -m benchmarks lookahead [--sizes small|full] [--seconds S] [--dir DIR] [--docs DIR] [PART ...]`` makes graphs
and layouts in DIR, and runs each cell in a process of its own, held by the kernel to a tenth more than its memory. The
disk is measured anew for every cell, after all images were read once: virtual disks change their speed. Parts:
``policies`` (three shares of the nodes in a batch x three memories), ``planner`` (three graphs x three memories),
``buffer`` (twice the memory; batches out of order; hits by windows against GIDS's). With
``--docs`` it writes ``benchmarks/lookahead.json`` and the tables of ``internals/lookahead.md``.

Seconds of reading are those of an epoch whose ids are all known, with a full buffer at its begin, where a batch's rows
are given up as soon as they are there: nothing is sampled, copied or trained meanwhile.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cache_policies import BUFFERED_WINDOWS
from benchmarks.harness import Sizes
from benchmarks.pages import describe_machine, existing_directory, markdown, put, show_machine, write_json
from benchmarks.stages import forget, run_limited, run_tiering, write_edges, write_rows
from tiering import generate_dataset
from tiering.errors import InputError, TieringError
from tiering.readahead.disk_speed import measure

REPOSITORY = Path(__file__).resolve().parents[1]
PROGRAM = Path(__file__).parent / "programs" / "reading.py"
PARTS = ("policies", "planner", "buffer")
BEGIN, END = "<!-- lookahead: {} -->", "<!-- lookahead: end -->"
SHARES = (1 / 2, 1 / 3, 1 / 10)
"""Rows in memory."""
BATCHES: tuple[tuple[int, tuple[int, ...]], ...] = ((100, (10, 10)), (500, (10, 10)), (1000, (10, 10, 10)))
"""Seeds and fanouts of batches that touch 0.4 %, 2 % and 23 % of the nodes of the graph ``generated``."""
DOUBLED = (1 / 4, 1 / 2)
HITS_SHARE = 1 / 3
OWN = "look-ahead"
"""The simulated policy that is the loader's own."""


@dataclass(frozen=True)
class GraphSize:
    """A graph and its features; one that is not generated has its own nodes and edges."""

    nodes: int
    edges: int
    row_bytes: int


GRAPHS = {
    "generated": GraphSize(2_000_000, 30_000_000, 512),
    "rmat": GraphSize(2_000_000, 30_000_000, 512),
    "uniform": GraphSize(2_000_000, 30_000_000, 512),
    "cnr-2000": GraphSize(325_557, 0, 1024),
}
MIDDLE: dict[str, tuple[int, tuple[int, ...]]] = {
    "generated": BATCHES[1],
    "rmat": BATCHES[1],
    "uniform": BATCHES[1],
    "cnr-2000": (100, (10, 10)),
}
"""By graph: a batch of about 2 % of its nodes."""
TABLE = "generated"
"""The graph of the policies, `tiering generate`'s, and of GNNDrive's setting."""
PLANNED = ("rmat", "uniform", "cnr-2000")
SMALLER = 20
"""``--sizes small``: generated graphs and batches are so many times smaller."""


@dataclass(frozen=True)
class Setting:
    """Settings of one cell."""

    graph: str
    batch_size: int
    fanouts: tuple[int, ...]
    share: float
    window: int = 0
    """Batches that are read together; 0: what the planner chooses."""

    @property
    def name(self) -> str:
        """Key that tells cells apart."""
        fanouts = ",".join(map(str, self.fanouts))
        return f"{self.graph} {self.batch_size} {fanouts} {self.share:.3f}" + f" W{self.window}" * bool(self.window)


def few(part: str) -> list[Setting]:
    """Return some cells of a part, for ``--sizes small``."""
    return [one for one in settings(part) if one.share in (HITS_SHARE, *DOUBLED) and one.window < BUFFERED_WINDOWS[1]]


def settings(part: str) -> list[Setting]:
    """Return the cells of a part; parts have some in common."""
    if part == "policies":
        return [Setting(TABLE, seeds, fanouts, share) for seeds, fanouts in BATCHES for share in SHARES]
    if part == "planner":
        return [Setting(graph, *MIDDLE[graph], share) for graph in PLANNED for share in SHARES]
    hits = [Setting(TABLE, *MIDDLE[TABLE], HITS_SHARE, window) for window in BUFFERED_WINDOWS]
    return [*(Setting(TABLE, *MIDDLE[TABLE], share) for share in DOUBLED), *hits]


def figures(cell: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of a cell's measurements and simulations; without the latter, ratios to them are left out."""
    measured = cell["measured"]
    counters, reading = measured["buffer"], cell["read"]["seconds"]
    found = {
        "reading": reading,
        "loader": measured["loader"],
        "sampling": measured["sampling"],
        "foreseen": cell["read"]["choice"]["seconds"],
        "foreseen_ratio": cell["read"]["choice"]["seconds"] / reading,
        "hits": 1 - counters["rows_read"] / max(1, counters["rows"]),
        "share": measured["slots"] / measured["rows"],
    }
    if policies := cell.get("simulated", {}).get("policies"):
        best = min(policies, key=lambda name: policies[name])
        bound = max(measured["sampling"], policies[best])
        found |= {
            "best": best, "best_seconds": policies[best], "reading_ratio": reading / policies[best],
            "loader_ratio": measured["loader"] / bound,
        }  # fmt: skip
    return found


def policy_rows(cells: Mapping[str, Any]) -> list[list[str]]:
    """Return the rows of the table of policies: a cell each."""
    rows = []
    for setting in settings("policies"):
        cell = cells.get(setting.name)
        if cell is None:
            continue
        head = [f"{setting.batch_size}; {','.join(map(str, setting.fanouts))}", f"{setting.share:.0%}"]
        if "note" in cell:
            rows.append([*head, cell["note"], *[""] * 9])
            continue
        found, policies = figures(cell), cell["simulated"]["policies"]
        others = [f"{policies[name]:.4f}" for name in ("static", "belady", "belady-merged")]
        rows.append(
            [*head, *others, f"{policies[OWN]:.4f}", f"{found['foreseen']:.4f}", f"{found['reading']:.4f}",
             f"{found['reading_ratio']:.2f} ({found['best']})", f"{found['sampling']:.4f}", f"{found['loader']:.4f}",
             f"{found['loader_ratio']:.2f}"]
        )  # fmt: skip
    return rows


def planner_rows(cells: Mapping[str, Any]) -> tuple[list[list[str]], float | None]:
    """Return the rows of the planner's table, and the greatest distance of foreseen / measured from 1."""
    rows, ratios = [], []
    for setting in settings("planner"):
        cell = cells.get(setting.name)
        if cell is None:
            continue
        head = [setting.graph, f"{setting.share:.0%}"]
        if "note" in cell:
            rows.append([*head, cell["note"], "", ""])
            continue
        found = figures(cell)
        ratios.append(found["foreseen_ratio"])
        rows.append([*head, f"{found['foreseen']:.4f}", f"{found['reading']:.4f}", f"{found['foreseen_ratio']:.2f}"])
    return rows, max((abs(ratio - 1) for ratio in ratios), default=None)


def buffer_rows(cells: Mapping[str, Any]) -> list[list[str]]:
    """Return the rows of the table of GNNDrive's setting: what twice the memory gains, and hits by windows."""
    rows = []
    less, more = (cells.get(Setting(TABLE, *MIDDLE[TABLE], share).name, {}) for share in DOUBLED)
    if "measured" in less and "measured" in more:
        before, after = figures(less), figures(more)
        for what in ("loader", "reading"):
            label = f"{what}, s per batch: memory {DOUBLED[0]:.0%}, then {DOUBLED[1]:.0%}"
            rows.append(
                [label, f"{before[what]:.4f}", f"{after[what]:.4f}", f"{before[what] / after[what]:.2f}"]
            )  # fmt: skip
    if order := less.get("order"):
        for kind, label in (("", "each batch reads by itself"), ("ahead_", "rows are read ahead")):
            if f"{kind}ready" not in order:  # of an earlier version
                continue
            in_order, ready = order[f"{kind}in_order"], order[f"{kind}ready"]
            label += ", s per batch: in order, then as batches are ready"
            rows.append([label, f"{in_order:.4f}", f"{ready:.4f}", f"{in_order / ready:.2f}"])
    for window in BUFFERED_WINDOWS:
        cell = cells.get(Setting(TABLE, *MIDDLE[TABLE], HITS_SHARE, window).name, {})
        if "measured" in cell:
            own, gids = figures(cell)["hits"], cell["simulated"]["gids_hits"][str(window)]
            rows.append(
                [
                    f"hits with windows of {window} batches: GIDS's, then ours",
                    f"{gids:.1%}",
                    f"{own:.1%}",
                    f"{own / gids:.2f}",
                ]
            )
    return rows


def tables(cells: Mapping[str, Any]) -> dict[str, str]:
    """Return Markdown by part; parts of which nothing was run are left out."""
    made = {}
    if rows := policy_rows(cells):
        heads = ["batch size; fanouts", "rows in memory", "static, s", "Belady, s", "Belady, merged, s"]
        heads += ["ours, simulated, s", "ours, estimated, s", "reading, s", "reading / best simulated (its policy)"]
        heads += ["sampling, s", "loader, s", "loader / max(sampling, best simulated)"]
        made["policies"] = markdown(heads, rows, left=1)
    planned, worst = planner_rows(cells)
    if planned:
        table = markdown(
            ["graph", "rows in memory", "estimated, s", "measured, s", "estimated / measured"], planned, left=1
        )
        made["planner"] = table + ("" if worst is None else f"\n\nLargest distance of a ratio from 1: {worst:.2f}.")
    if rows := buffer_rows(cells):
        made["buffer"] = markdown(["comparison", "first", "second", "gain by the second"], rows, left=1)
    return made


def make_layout(name: str, size: GraphSize, folder: Path, data: Path) -> Path:
    """Write the layout of a graph with all rows on SSD, hottest first, and remove its source."""
    work, out = folder / f"{name}-work", folder / name
    source, graph, scores, ordered = (work / part for part in ("data", "graph", "scores", "reordered"))
    sizes = Sizes(stage_nodes=size.nodes, edges=size.edges, memory="auto")
    if name == TABLE:
        generate_dataset(source, nodes=size.nodes, edges=size.edges, dim=size.row_bytes // 4)
        run_tiering(sizes, ["import", source, "--out", graph])
    else:
        write_source(name, size, source, data)
        run_tiering(sizes, ["import", source, "--num-nodes", size.nodes, "--out", graph])
    run_tiering(sizes, ["score", graph, "--method", "wrpr", "--out", scores])
    run_tiering(sizes, ["reorder", graph, "--scores", scores, "--out", ordered])
    run_tiering(sizes, ["layout", ordered, "--cpu", "0", "--ssd", folder / f"{name}-ssd", "--out", out])
    shutil.rmtree(work)
    return out


def write_source(name: str, size: GraphSize, source: Path, data: Path) -> None:
    """Write edges, rows and a tenth of the nodes for training, as NumPy files."""
    if name == "rmat":
        write_edges(Sizes(stage_nodes=size.nodes, edges=size.edges), source)
    else:
        source.mkdir(parents=True)
        edges = source / "edge_index.npy"
        if name == "uniform":
            np.save(edges, np.random.default_rng(1).integers(0, size.nodes, (2, size.edges)))
        else:
            shutil.copy(data / name / edges.name, edges)
    write_rows(source / "node_feat.npy", size.nodes, size.row_bytes)
    np.save(source / "train_idx.npy", np.random.default_rng(2).permutation(size.nodes)[: size.nodes // 10])


def warm_up(images: Sequence[Path]) -> None:
    """Read images once: what a virtual disk has not read for long comes slowly the first time."""
    with contextlib.ExitStack() as stack:
        for image in images:
            file = stack.enter_context(image.open("rb", buffering=0))
            while file.read(1 << 24):
                pass


def run_program(work: str, layout: Path, asked: Mapping[str, Any], memory: str = "auto") -> dict[str, Any]:
    """Return the program's output, held to a tenth more than `memory` where that is a size."""
    done = run_limited(memory, [sys.executable, PROGRAM, work, layout, json.dumps(asked)])
    return dict(json.loads(done.result.splitlines()[-1]))


class Cells:
    """Runs cells on layouts of one folder, each with the disk's speed just before it; all are kept by their name."""

    def __init__(self, layouts: Mapping[str, Path], folder: Path, seconds: float, small: bool) -> None:
        self.done: dict[str, Any] = {}
        self._layouts, self._folder, self._seconds, self._small = layouts, folder, seconds, small
        self._models: dict[str, Path] = {}
        for name in layouts:
            warm_up(self._images(name))
        self._fits: dict[str, Any] = {}
        self._fixed: dict[Any, dict[str, int]] = {}

    def measure(self, setting: Setting) -> None:
        """Find the memory, run the loader in it. A cell that cannot be has a note."""
        forget(path for path in self._folder.rglob("*") if path.is_file() and path.stat().st_size)
        self._models[setting.name] = model = self._folder / f"disk-{len(self._models)}.json"
        model.write_text(json.dumps(asdict(measure(self._images(setting.graph), min(1.0, self._seconds)))))
        layout, options = self._layouts[setting.graph], self._options(setting)
        rows = int(setting.share * self._nodes(layout))
        fitted = replace(setting, window=0).name
        if fitted not in self._fits:
            asked = {"loader": options | {"window": "auto"}, "rows": rows}
            key = (setting.graph, setting.batch_size, setting.fanouts)
            self._fits[fitted] = run_program("fit", layout, asked | self._fixed.get(key, {}))
            if "fixed" in self._fits[fitted]:
                self._fixed[key] = {"fixed": self._fits[fitted]["fixed"]}
        fit = self._fits[fitted]
        if "note" in fit:
            self.done[setting.name] = {"setting": asdict(setting), "note": fit["note"]}
            return
        asked = {"loader": options, "extra": fit["extra"], "seconds": self._seconds}
        measured = run_program("measure", layout, asked, f"{fit['limit']}B")
        read = run_program("read", layout, asked)
        self.done[setting.name] = {
            "setting": asdict(setting), "memory": fit["limit"], "extra": fit["extra"],
            "measured": measured, "read": read,
        }  # fmt: skip

    def reorder(self) -> None:
        """Measure batches in order and as they are ready, read by themselves and ahead, with the smaller memory."""
        setting = Setting(TABLE, *MIDDLE[TABLE], DOUBLED[0])
        if "extra" in (cell := self.done[setting.name]):  # else all rows fit
            asked = {"loader": self._options(setting), "seconds": 3 * self._seconds, "extra": cell["extra"]}
            cell["order"] = run_program("reorder", self._layouts[TABLE], asked)

    def simulate(self, setting: Setting) -> None:
        """Simulate every policy with the room that the measured loader had; for windows set by hand, GIDS's hits."""
        cell = self.done[setting.name]
        if "measured" in cell:
            asked = {
                "loader": self._options(setting),
                "slots": cell["measured"]["slots"],
                "fewest": cell["read"]["fewest"],
                "hits": bool(setting.window),
            }
            cell["simulated"] = run_program("simulate", self._layouts[setting.graph], asked)

    def _images(self, name: str) -> list[Path]:
        folder = self._folder / f"{name}-ssd"
        return sorted(path for path in folder.rglob("ssd-*-of-*") if path.is_file() and path.stat().st_size)

    def _nodes(self, layout: Path) -> int:
        document = json.loads((layout / "manifest.json").read_text())
        (entry,) = document["body"]["node_types"].values()
        return int(entry["num_nodes"])

    def _options(self, setting: Setting) -> dict[str, Any]:
        """Return the keywords of the loader. The fewer batches are under way, the more of the memory is the buffer."""
        seeds = max(1, setting.batch_size // SMALLER) if self._small else setting.batch_size
        more = {"window": setting.window} if setting.window else {}
        return {
            "batch_size": seeds, "fanouts": list(setting.fanouts), "seed": 0, "workers": 2, "prefetch": 1,
            "direct": "on",
            "ssd_model": str(self._models[setting.name]), "depth": 16 if self._small else 128, **more,
        }  # fmt: skip


def run(parts: Sequence[str], folder: Path, data: Path, seconds: float, small: bool) -> dict[str, Any]:
    """Make what the parts need, measure all cells one after the other, then simulate."""
    choose = few if small else settings
    wanted = list(dict.fromkeys(setting for part in parts for setting in choose(part)))
    graphs = {name: size for name, size in GRAPHS.items() if any(setting.graph == name for setting in wanted)}
    if "cnr-2000" in graphs and not (data / "cnr-2000").is_dir():
        print(f"cnr-2000 is left out: it is not in {data}", file=sys.stderr)
        del graphs["cnr-2000"]
    layouts = {}
    for name, size in graphs.items():
        print(f"{name}: making the layout", file=sys.stderr, flush=True)
        if small and size.edges:
            size = replace(size, nodes=size.nodes // SMALLER, edges=size.edges // SMALLER)
        layouts[name] = make_layout(name, size, folder, data)
    cells = Cells(layouts, folder, seconds, small)
    wanted = [setting for setting in wanted if setting.graph in layouts]
    for number, setting in enumerate(wanted, 1):
        print(f"{number} of {len(wanted)}: {setting.name}", file=sys.stderr, flush=True)
        cells.measure(setting)
    if "buffer" in parts:
        cells.reorder()
    print("simulating", file=sys.stderr, flush=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # nothing is timed any more
        list(pool.map(cells.simulate, wanted))
    return {"cells": cells.done}


def main(argv: Sequence[str]) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks lookahead", description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"some of {', '.join(PARTS)}; all if none")
    parser.add_argument("--sizes", choices=("small", "full"), default="full")
    parser.add_argument("--seconds", type=float, default=10.0, help="of a cell, that are measured")
    parser.add_argument("--data", type=Path, default=REPOSITORY.parent / "shared" / "data", help="where cnr-2000 lies")
    parser.add_argument("--dir", type=existing_directory, default=Path(), help="directory on the disk to measure")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument("--docs", type=Path, metavar="DIR", help="write figures and tables of documentation there")
    given = parser.parse_args(argv)
    try:
        if unknown := [part for part in given.parts if part not in PARTS]:
            raise InputError(f"no part {unknown[0]!r}; parts: {', '.join(PARTS)}")
        page = given.docs / "internals" / "lookahead.md" if given.docs else None
        if page and not page.is_file():
            raise InputError(f"--docs {given.docs}: expected the page {page}, which has places for the tables")
        with tempfile.TemporaryDirectory(prefix="tiering-bench-", dir=given.dir) as name:
            found = run(given.parts or PARTS, Path(name), given.data, given.seconds, given.sizes == "small")
    except TieringError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    machine = describe_machine()
    document = {"machine": machine, "sizes": given.sizes, "seconds": given.seconds, **found}
    print(show_machine(machine))
    if speeds := [cell["read"]["speed"] for cell in found["cells"].values() if "read" in cell]:
        for figure in speeds[0]:
            each = sorted(speed[figure] for speed in speeds)
            print(f"disk, {figure}: {each[0]:,.0f} to {each[-1]:,.0f}")
    for part, table in tables(found["cells"]).items():
        print(f"\n{part}\n{table}")
        if page:
            put(page, BEGIN.format(part), END, table)
    if given.json:
        write_json(given.json, document)
    if given.docs:
        write_json(given.docs / "benchmarks" / "lookahead.json", document)
    return 0
