"""The tables of ``docs/internals/score-tables.md``: every method, on real and generated graphs, on unseen epochs.

``python -m benchmarks scores [NAME ...] [--data DIR] [--small] [--docs DIR]`` makes the tables named (all by default;
those whose data are not in DIR are left out), keeps the others, and writes ``benchmarks/scores.json`` and the part of
``internals/score-tables.md`` between its marks. ``--small`` shrinks the generated graphs, for the test.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.pages import describe_machine, markdown, put
from benchmarks.rmat import rmat_edges
from tiering import generate_dataset, pipeline
from tiering.evaluation import ORACLE, evaluate
from tiering.formats.graph import Graph
from tiering.layout.tiers import parse_capacities
from tiering.sampling import SamplingOptions

REPOSITORY = Path(__file__).resolve().parents[1]
SHARES = (0.01, 0.05, 0.1, 0.2)
UNIFORM = ("uniform", "replacement", "full", "weighted")
FEW = (("wrpr", 0), ("vip", 0), ("presample", 2), ("hybrid", 2))
ALL = (
    ("degree", 0), ("rpr", 0), ("wrpr", 0), ("vip", 0), ("presample", 1), ("presample", 2), ("presample", 5),
    ("hybrid", 2), ("hybrid", 5),
)  # fmt: skip
PAGE, BEGIN, END = "internals/score-tables.md", "<!-- tables: begin -->", "<!-- tables: end -->"


@dataclass(frozen=True)
class Table:
    """One table: predictors by rows, capacities by columns, once per way of sampling."""

    name: str
    title: str
    dataset: str
    samplings: Sequence[dict[str, Any]]
    methods: Sequence[tuple[str, int]] = ALL
    tiers: dict[str, Any] = field(default_factory=dict)
    on_page: bool = True
    """Whether the page has it; ``scores.json`` has all."""


DATASETS = {
    "cnr-2000": "a web graph, 325,557 nodes, 3.2 M edges, 1 % train",
    "tolokers": "11,758 workers, 1.0 M edges (both directions), half of them train",
    "dblp-citation": "17,716 papers, 105,734 edges, 80 of them train",
    "rmat": "R-MAT, 1.0 M nodes, 12.6 M edges, ids scrambled, 1 % train",
    "hetero": "`tiering generate --hetero`, 400 k nodes of four types, 4 M edges",
}
GENERATED = ("rmat", "hetero")


def make_graph(name: str, data: Path, work: Path, small: bool) -> tuple[Graph, Any]:
    """Import or generate a dataset's graph in `work`; return its training nodes too where it has no split."""
    options: dict[str, Any] = {"reverse_edges": True} if name == "tolokers" else {}
    place = data / name
    if name in GENERATED:
        place = work / f"{name}-data"
    if name == "hetero":
        nodes = 4_000 if small else 400_000
        generate_dataset(place, nodes=nodes, edges=10 * nodes, dim=16, classes=8, hetero=True, seed=0)
    if name == "rmat":
        scale = 12 if small else 20
        options["num_nodes"] = 1 << scale
        source, target = rmat_edges(scale, 12 << scale, scramble=True)
        place.mkdir()
        np.save(place / "edge_index.npy", np.stack([source, target]))
        np.save(place / "edge_weight.npy", np.random.default_rng(0).exponential(size=source.size).astype(np.float32))
    graph = pipeline.import_graph(place, work / name, **options)
    if name not in ("cnr-2000", "rmat"):
        return graph, None
    count = graph.num_nodes()
    return graph, np.sort(np.random.default_rng(0).choice(count, count // 100, replace=False))


_DEPTHS = [{"fanouts": [10] * hops, "batch_size": 256} for hops in (2, 3, 4, 5)]
_CNR, _RMAT = {"fanouts": [10, 10, 10], "batch_size": 256}, {"fanouts": [10, 10], "batch_size": 256}
TABLES = (
    Table("cnr-2000", "A web graph", "cnr-2000", [_CNR]),
    Table("cnr-2000-new", "The same, frontier `new`", "cnr-2000", [{**_CNR, "frontier": "new"}], FEW, on_page=False),
    Table("depth", "Deeper", "cnr-2000", _DEPTHS, FEW, on_page=False),
    Table("tolokers", "A dense social graph", "tolokers", [{"fanouts": [10, 10], "batch_size": 32}], on_page=False),
    Table("dblp-citation", "Few training nodes", "dblp-citation", [{"fanouts": [10, 10, 10], "batch_size": 32}]),
    Table("rmat", "A power law without communities", "rmat", [_RMAT]),
    Table("samplers", "Other samplers", "rmat", [
        {**_RMAT, "sampler": "replacement"},
        {**_RMAT, "sampler": "weighted"},
        {**_RMAT, "sampler": "full", "fanouts": [-1, -1]},
        {**_RMAT, "sampler": "pinsage", "num_walks": 50},
        {**_RMAT, "sampler": "ladies", "fanouts": [2000, 4000]},
    ], FEW, on_page=False),
    Table(
        "hetero", "Four node types, seven relations", "hetero", [{"fanouts": [10, 10], "batch_size": 512}],
        tiers={"gpu": "3%", "peer": "2x5%", "cpu": "20%", "ssd": True},
    ),
)  # fmt: skip


def measure(table: Table, graph: Graph, train: Any, work: Path) -> list[dict[str, Any]]:
    """Score by every method and judge them side by side, once per way of sampling."""
    runs = []
    for number, how in enumerate(table.samplings):
        scores, seconds = {}, {}
        for method, epochs in table.methods:
            if method == "vip" and how.get("sampler", "uniform") not in UNIFORM:
                continue
            label = f"{method} K={epochs}" if epochs else method
            options = dict(how) if method in ("vip", "presample", "hybrid") else {}
            if epochs:
                options["epochs"] = epochs
            if method not in ("degree", "rpr"):
                options["train"] = train
            start = time.perf_counter()
            scores[label] = pipeline.score_graph(graph, work / f"{table.name}-{number}-{label}", method, **options)
            seconds[label] = round(time.perf_counter() - start, 3)
        tiers = parse_capacities(**table.tiers) if table.tiers else None
        sampling = SamplingOptions(**how)
        result = evaluate(graph, scores, sampling, train=train, shares=SHARES, tiers=tiers)
        runs.append({"sampling": how, "seconds": seconds, "result": result.to_json()})
    return runs


def render(table: Table, runs: Sequence[dict[str, Any]]) -> str:
    """Return a table as Markdown."""
    about = DATASETS[table.dataset]
    parts = [f"### {table.title}: {table.dataset}\n\n{about[0].upper() + about[1:]}.\n"]
    for run in runs:
        parts.append(f"{_how(run)}\n\n{_hit_rates(run)}\n")
        if run["result"]["tiers"]:
            parts += [f"{_types(run)}\n", f"{_links(run)}\n"]
    return "\n".join(parts)


def _how(run: dict[str, Any]) -> str:
    how = {"sampler": "uniform", "frontier": "all", **run["sampling"]}
    fanouts = ",".join(map(str, how["fanouts"]))
    text = f"{how['sampler'].capitalize()}, fanouts {fanouts}, batch size {how['batch_size']}"
    text += f", frontier `{how['frontier']}`" if how["frontier"] != "all" else ""
    return f"{text}:"


def _hit_rates(run: dict[str, Any]) -> str:
    result = run["result"]
    heads, rows = ["method", *(f"hits, {100 * share:g} % cached, %" for share in result["shares"]), "scoring, s"], []
    for name, rates in result["hit_rates"].items():
        ends = result["intervals"].get(name, [None] * len(rates))
        label = "*oracle*" if name == ORACLE else f"`{name.split()[0]}`" + name[len(name.split()[0]) :]
        cells = [_rate(rate, end) for rate, end in zip(rates, ends, strict=True)]
        rows.append([label, *cells, f"{run['seconds'][name]:.2g}" if name in run["seconds"] else ""])
    return markdown(heads, rows, left=1)


def _rate(rate: float, ends: Sequence[float] | None) -> str:
    half = 50 * (ends[1] - ends[0]) if ends else 0.0
    return f"{100 * rate:.1f}" + (f" ± {half:.{1 if half >= 0.05 else 2}f}" if ends else "")


def _types(run: dict[str, Any]) -> str:
    """Return where the types end up: share of rows, of reads, and of each type's rows in the 10 % that are cached."""
    types, shares = run["result"]["types"], run["result"]["shares"]
    at = shares.index(0.1)
    best = next(name for name in types["paper"]["hit_rates"] if name.startswith("hybrid"))
    heads, rows = (
        ["node type", "fraction of all rows", "fraction of all reads", "type's rows cached", "type's reads served"],
        [],
    )
    total = run["result"]["num_rows"]
    for name, entry in types.items():
        cached = entry["cached_rows"][best][at] / entry["rows"]
        cells = (entry["rows"] / total, entry["access_share"], cached, entry["hit_rates"][best][at])
        rows.append([name, *(f"{100 * cell:.1f} %" for cell in cells)])
    return f"How node types share a cache of 10 % in the order of `hybrid`:\n\n{markdown(heads, rows, left=1)}"


def _links(run: dict[str, Any]) -> str:
    plan = run["result"]["tiers"]
    links = list(next(iter(plan["scores"].values()))["links"])
    heads, rows = ["method", *(f"{link.replace('_', ' ')}, MB per epoch" for link in links)], []
    for name, traffic in plan["scores"].items():
        moved = [traffic["links"][link]["bytes_per_epoch"] / 1e6 for link in links]
        rows.append([name, *(f"{nbytes:.1f}" for nbytes in moved)])
    sizes = ", ".join(f"{tier} {size}" for tier, size in plan["capacities"].items() if isinstance(size, str))
    return f"Bytes that each plan moves, with {sizes}, and the rest on SSD:\n\n{markdown(heads, rows, left=1)}"


def write(docs: Path, done: dict[str, Any]) -> None:
    """Write the figures, and the tables between the markers of the page."""

    def rounded(runs: Any) -> Any:
        return json.loads(json.dumps(runs), parse_float=lambda text: float(f"{float(text):.6g}"))

    (docs / "benchmarks").mkdir(exist_ok=True)
    lines = [f"  {json.dumps(name)}: {json.dumps(rounded(runs))}" for name, runs in done["tables"].items()]
    tables = "{\n" + ",\n".join(lines) + "\n }"
    text = f'{{\n "machine": {json.dumps(done["machine"])},\n "tables": {tables}\n}}\n'
    (docs / "benchmarks" / "scores.json").write_text(text)
    parts = [
        render(table, done["tables"][table.name]) for table in TABLES if table.on_page and table.name in done["tables"]
    ]
    put(docs / PAGE, BEGIN, END, "\n" + "\n".join(parts))


def main(argv: Sequence[str]) -> int:
    """Measure what was asked for, keep the rest, write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks scores", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(table.name for table in TABLES))
    parser.add_argument("--data", type=Path, default=REPOSITORY.parent / "shared" / "data")
    parser.add_argument("--docs", type=Path, default=REPOSITORY / "docs")
    parser.add_argument("--small", action="store_true")
    asked = parser.parse_args(argv)
    if unknown := set(asked.names) - {table.name for table in TABLES}:
        parser.error(f"no table {', '.join(sorted(unknown))}")
    figures = asked.docs / "benchmarks" / "scores.json"
    done = json.loads(figures.read_text()) if figures.exists() else {"tables": {}}
    done["machine"] = describe_machine()
    graphs: dict[str, tuple[Graph, Any]] = {}
    with tempfile.TemporaryDirectory() as name:
        for table in TABLES:
            dataset = table.dataset
            wanted = table.name in (asked.names or [table.name])
            if not wanted or not (dataset in GENERATED or (asked.data / dataset).is_dir()):
                continue
            print(table.name, file=sys.stderr)
            if dataset not in graphs:
                graphs[dataset] = make_graph(dataset, asked.data, Path(name), asked.small)
            done["tables"][table.name] = measure(table, *graphs[dataset], Path(name))
    write(asked.docs, done)
    return 0
