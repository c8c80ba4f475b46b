"""``python -m benchmarks quantized [PART ...]``: what codecs of rows cost and gain, part by part.

``--json FILE`` keeps the results of parts that are not measured again; ``--docs DIR`` writes the tables of
``internals/quantized-rows.md`` from them, and ``benchmarks/quantized.json``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.harness import Comparison, Result, Sizes, Table
from benchmarks.pages import comparison_table, describe_machine, markdown, put, show_machine, write_json
from tiering.errors import InputError, TieringError

Part = Callable[[argparse.Namespace, Sizes], Iterable[Result]]
GRAPHS = ("dblp-citation", "tolokers", "cora")
PAGE = "internals/quantized-rows.md"
BEGIN, END = "<!-- quantized: {} -->", "<!-- quantized: end -->"
_MANY = 0.1  # fraction of rows that is shown as a percentage
_DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"


def _run_accuracy(graph: str, options: argparse.Namespace, _: Sizes) -> Iterable[Result]:
    return [import_module("benchmarks.quantized.accuracy").measure(graph, options.data, options.seeds)]


def _run_sizes(function: str, _: argparse.Namespace, sizes: Sizes) -> Iterable[Result]:
    module, name = function.split(".")
    done: Result | Iterable[Result] = getattr(import_module(f"benchmarks.quantized.{module}"), name)(sizes)
    return [done] if isinstance(done, (Comparison, Table)) else done


PARTS: dict[str, tuple[Part, str]] = {
    "gather": (partial(_run_sizes, "gather.gather"), "gathers that decode, against float32 and torch's unpacking"),
    "encode": (partial(_run_sizes, "layout.encode"), "rows encoded, against copying them"),
    "layout": (partial(_run_sizes, "layout.layout"), "layouts that store rows as int8, against float32"),
    "loader": (partial(_run_sizes, "loader.loader"), "waits of loaders for reads, by codec, in the same memory"),
    "padding": (partial(_run_sizes, "padding.padding"), "rows read from a disk, tight and padded"),
    "published": (partial(_run_sizes, "sizes.published"), "sizes of published tables, calculated"),
    **{graph: (partial(_run_accuracy, graph), f"accuracy of GraphSAGE on {graph}, by codec") for graph in GRAPHS},
}
"""By name: the work, and what it finds."""


def accuracy_table(results: Mapping[str, Any]) -> str:
    """Return a line for each codec, with the change of the score and the loss on all graphs there are results of."""
    graphs = [graph for graph in GRAPHS if graph in results]
    heads, lines = ["codec"], dict[str, list[str]]()
    for graph in graphs:
        heads += [f"{graph}: {results[graph]['tables'][0]['parameters']['score']}", f"{graph}: errors of the rows"]
        for of in _lines(results[graph]):
            change = f"{of['score']:.4f} (sd {of['sd']:.4f})"
            if of["p"] is not None:
                same = of["difference"] == of["95 %"] == 0
                change = "0" if same else f"{of['difference']:+.4f} ± {of['95 %']:.4f} (p {of['p']:.2g})"
            change = f"**{change}**" if of["differs"] == "yes" else change
            loss = " / ".join(f"{of[name]:.2g}" for name in ("rms", "worst column", "largest"))
            exact = int(of["exact columns"].split()[0])
            loss = "exact" if not of["largest"] else loss + (f"; {of['exact columns']} exact" if exact else "")
            lines.setdefault(of["codec"], []).extend([change, loss])
    return markdown(heads, [[f"`{codec}`", *cells] for codec, cells in lines.items()], left=1)


def padding_table(results: Mapping[str, Any]) -> str:
    """Return a line for each length of a row, with the times and bytes of tight rows over those of padded ones."""
    heads, lines = ["bytes of a row: own, tight, padded"], dict[str, list[str]]()
    for of in _lines(results["padding"]):
        head = f"one row in {1 / of['density']:.0f}" if of["density"] < _MANY else f"{of['density']:.0%} of the rows"
        head += ": times; MB read"
        heads += [head] if head not in heads else []
        ratio = f"{of['tight / padded']:.2f} ({of['least']:.2f} .. {of['most']:.2f})"
        sizes = f"{of['read'] / 1e6:,.0f} / {of['read, padded'] / 1e6:,.0f} MB"
        lines.setdefault(f"{of['row bytes']}: {of['stride']}, {of['padded']}", []).append(f"{ratio}; {sizes}")
    return markdown(heads, [[strides, *cells] for strides, cells in lines.items()])


def published_table(results: Mapping[str, Any]) -> str:
    """Return sizes in GB, in memory and on a disk, and how much of them fits."""
    rows = []
    for of in _lines(results["published"]):
        sizes = (f"{of[what] / 1e9:.0f}" for what in ("bytes", "on ssd, padded", "on ssd"))
        cells = [str(of["row bytes"]), *sizes, f"{of['share of rows in memory']:.0%}"]
        rows.append([of["table"], of["stored as"], *cells])
    heads = [
        "table",
        "stored as",
        "row, bytes",
        "rows, GB",
        "padded on SSD, GB",
        "tight on SSD, GB",
        "rows that fit 128 GiB",
    ]
    return markdown(heads, rows, left=2)


def _lines(result: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    return (dict(zip(table["heads"], row, strict=True)) for table in result["tables"] for row in table["rows"])


TABLES: dict[str, tuple[tuple[str, ...], Callable[[Mapping[str, Any]], str]]] = {
    "accuracy": (GRAPHS, accuracy_table),
    "published": (("published",), published_table),
    "padding": (("padding",), padding_table),
}
"""By place in the page: the parts whose results it shows, and how."""


def main(argv: Sequence[str]) -> int:
    """See the module."""
    listed = "; ".join(f"{name}: {summary}" for name, (_, summary) in PARTS.items())
    parser = argparse.ArgumentParser(prog="python -m benchmarks quantized", description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{listed}; all if none")
    parser.add_argument("--seeds", type=int, default=20, help="accuracy: seeds, at least 2")
    parser.add_argument("--data", type=Path, default=_DATA, help="accuracy: where the graphs lie")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there; other parts of it stay")
    parser.add_argument("--docs", type=Path, metavar="DIR", help="write the tables of the page, and its figures")
    Sizes.options(parser, "repeats", "threads", "feature_bytes", "folder", "stage_nodes", "seconds")
    options = parser.parse_args(argv)
    try:
        if unknown := [part for part in options.parts if part not in PARTS]:
            raise InputError(f"no part {unknown[0]!r}; parts: {', '.join(PARTS)}")
        if options.seeds < 2:
            raise InputError(f"--seeds: expected at least 2, found {options.seeds}")
        if options.docs and not (page := options.docs / PAGE).is_file():
            raise InputError(f"--docs {options.docs}: expected the page {page}, which has places for the tables")
        results = measure(options)
    except TieringError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for place, (parts, table) in TABLES.items() if options.docs else ():
        if any(part in results for part in parts):
            put(options.docs / PAGE, BEGIN.format(place), END, table(results))
    return 0


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run the parts that were asked for; return their results and those kept in files."""
    files = [path for path in (options.docs and options.docs / "benchmarks" / "quantized.json", options.json) if path]
    results: dict[str, Any] = {}
    for path in filter(Path.exists, files):
        results |= json.loads(path.read_text())
    machine = describe_machine()
    print(show_machine(machine))
    for name in options.parts or PARTS:
        print(f"{name}: {PARTS[name][1]} ...", file=sys.stderr, flush=True)
        results[name] = {"machine": machine, "tables": []}
        for result in PARTS[name][0](options, Sizes.from_options(options)):
            results[name]["tables"].append(result.to_json())
            print("\n" + comparison_table(results[name]["tables"][-1]), flush=True)
        for path in files:
            write_json(path, results)
    return results
