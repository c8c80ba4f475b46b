"""The table of local training sets, in ``docs/internals/score-tables.md``: four graphs, spread and local nodes.

``python -m benchmarks locality [--data DIR] [--small] [--docs DIR]`` writes ``benchmarks/locality.json`` and the part
of that page between its marks. Local training nodes are runs of consecutive ids, or, where ids say nothing, nodes
of one class. Scores see two training sets of a kind: the one that is judged, and another.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.pages import describe_machine, existing_directory, markdown, put
from benchmarks.papers.inputs import local_nodes
from benchmarks.score_tables import PAGE, REPOSITORY, make_graph
from tiering import generate_dataset, pipeline
from tiering.evaluation import evaluate
from tiering.formats.graph import Graph

SHARE = 0.1
FANOUTS, CLASSES = [10, 10, 10], 100
GRAPHS = {
    "cnr-2000": ("a web graph", "1 % at random", "ten runs of ids", 256),
    "generated": ("`tiering generate`, 100 communities", "1 % at random", "one class", 256),
    "dblp-citation": ("citations of papers", "80 at random", "80 of one class", 32),
    "rmat": ("a power law without communities", "1 % at random", "ten runs of ids", 256),
}
"""By name: what the graph is, its training sets in words, and the batch size."""
METHODS = ("degree", "wrpr", "vip", "hybrid")
BEGIN, END = "<!-- locality: begin -->", "<!-- locality: end -->"

Nodes = npt.NDArray[np.int64]


def training_sets(name: str, graph: Graph, local: bool) -> tuple[Nodes, Nodes]:
    """Return two sets of training nodes of a kind, of the same size."""
    count = graph.num_nodes()
    size = 80 if name == "dblp-citation" else count // 100
    drawn = [np.random.default_rng(seed) for seed in (0, 1)]
    if not local:
        one, other = (np.sort(rng.choice(count, size, replace=False)) for rng in drawn)
    elif name in ("cnr-2000", "rmat"):
        one, other = (local_nodes(count, seed) for seed in (0, 1))
    else:
        labels = np.asarray(graph.labels()).astype(np.int64)
        classes = np.argsort(np.bincount(labels), kind="stable")[:2]
        one, other = (
            np.sort(rng.choice(nodes, min(size, nodes.size), replace=False))
            for rng, nodes in zip(drawn, (np.flatnonzero(labels == number) for number in classes), strict=True)
        )
    return one, other


def measure(name: str, data: Path, work: Path, small: bool) -> list[dict[str, Any]]:
    """Return the locality of both kinds of training sets of a graph, and hits of scores with a tenth of the rows."""
    if name == "generated":
        count = 4000 if small else 200_000
        generate_dataset(work / "data", nodes=count, edges=10 * count, dim=4, classes=10 if small else CLASSES)
        graph = pipeline.import_graph(work / "data", work / name)
    else:
        graph, _ = make_graph(name, data, work, small)
    _, *kinds, batch_size = GRAPHS[name]
    found = []
    for local, kind in enumerate(kinds):
        train, other = training_sets(name, graph, bool(local))
        how: dict[str, Any] = {"fanouts": FANOUTS, "batch_size": batch_size}
        scores = {}
        for label, method, nodes in [*((method, method, train) for method in METHODS), ("other", "hybrid", other)]:
            options = {} if method == "degree" else {"train": nodes} | (how if method in ("vip", "hybrid") else {})
            scores[label] = pipeline.score_graph(graph, work / f"{name}-{local}-{label}", method, **options)
        result = evaluate(graph, scores, FANOUTS, batch_size=batch_size, train=train, shares=[SHARE], resamples=0)
        about = {"graph": name, "train": kind, "num_nodes": graph.num_nodes(), "locality": result.locality.to_json()}
        found.append({**about, "hits": {label: round(rates[0], 4) for label, rates in result.hit_rates.items()}})
    return found


def render(runs: Sequence[dict[str, Any]]) -> str:
    """Return the table in Markdown: hits with a tenth of the rows, by training set and score."""
    heads, rows = ["graph", "training nodes", "nodes read per epoch", "locality"], []
    heads += [f"hits, {name}" for name in (*(f"`{m}`" for m in METHODS), "`hybrid` of other nodes", "*oracle*")]
    for run in runs:
        measured, hits = run["locality"], (run["hits"][label] for label in (*METHODS, "other", "oracle"))
        read = f"{100 * measured['nodes'] / run['num_nodes']:.1f} %"
        about = [f"{run['graph']}: {GRAPHS[run['graph']][0]}", run["train"], read, f"{measured['ratio']:.1f}"]
        rows.append([*about, *(f"{100 * rate:.0f} %" for rate in hits)])
    return markdown(heads, rows, left=2)


def main(argv: Sequence[str]) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks locality", description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=existing_directory, default=REPOSITORY.parent / "shared" / "data")
    parser.add_argument("--docs", type=existing_directory, default=REPOSITORY / "docs")
    parser.add_argument("--small", action="store_true", help="small generated graphs, for the test")
    asked = parser.parse_args(argv)
    runs = []
    for name in GRAPHS:
        if name in ("generated", "rmat") or (asked.data / name).is_dir():
            print(name, file=sys.stderr)
            with tempfile.TemporaryDirectory(prefix="tiering-bench-") as work:
                runs += measure(name, asked.data, Path(work), asked.small)
    (asked.docs / "benchmarks").mkdir(exist_ok=True)
    document = {"machine": describe_machine(), "share": SHARE, "fanouts": FANOUTS, "runs": runs}
    (asked.docs / "benchmarks" / "locality.json").write_text(json.dumps(document, indent=1) + "\n")
    put(asked.docs / PAGE, BEGIN, END, render(runs))
    return 0
