"""Run the whole chain on generated data: import, score, evaluate, reorder, write a layout, train.

    make demo            # or: python examples/demo.py [--nodes N] [--edges E] [--out DIR]

The training runs from the tiers and from memory, and the results must be equal. All files, and a plot of the hit rates,
are in ``demo-out``; each run replaces them.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import click
from train_graphsage import train

from tiering import generate_dataset, pipeline
from tiering.cli.output import print_parts
from tiering.evaluation import Evaluation, evaluate, named_scores, plot
from tiering.formats.graph import Graph
from tiering.formats.layout import TIERS, Layout
from tiering.formats.scores import Scores
from tiering.text.description import Table
from tiering.text.units import format_bytes, format_count

SEED = 0
FANOUTS = [10, 10]
BATCH_SIZE = 1024
METHODS: dict[str, dict[str, Any]] = {
    "degree": {},
    "wrpr": {},
    "vip": {"fanouts": FANOUTS, "batch_size": BATCH_SIZE},
    "hybrid": {"fanouts": FANOUTS, "batch_size": BATCH_SIZE},
}
"""Scores and their options. The last one fills the tiers."""
TIER_SIZES = {"gpu": "3%", "peer": "2x3%", "cpu": "20%"}

DONE = click.style("✓", fg="green")


def step(text: str, work: Callable[[], Any]) -> Any:
    """Run one step, and print what it did and its seconds."""
    begun = time.perf_counter()
    result = work()
    click.echo(f"{DONE} {text} {click.style(f'{time.perf_counter() - begun:.1f} s', dim=True)}")
    return result


def rule(title: str) -> None:
    """Print the title of a part as a line across the screen."""
    click.echo(f" {title} ".center(80, "─"))


def prepare(out: Path, nodes: int, edges: int) -> tuple[Layout, Evaluation]:
    """Generate a dataset and write a layout of four tiers; return it and the evaluation of the scores."""
    step(
        f"generated {format_count(nodes)} nodes, {format_count(edges)} edges, 128 values a node, in IGB's format",
        lambda: generate_dataset(out / "data", nodes=nodes, edges=edges, dim=128, classes=8, seed=SEED),
    )
    graph: Graph = step("imported as a graph", lambda: pipeline.import_graph(out / "data", out / "graph"))
    scores: list[Scores] = [
        step(f"scored by {method}", partial(pipeline.score_graph, graph, out / f"score-{method}", method, **options))
        for method, options in METHODS.items()
    ]
    evaluation: Evaluation = step(
        "counted the feature reads of 3 sampled epochs",
        lambda: evaluate(graph, named_scores(graph, scores), FANOUTS, batch_size=BATCH_SIZE, epochs=3, seed=SEED + 1),
    )
    reordered = step(
        f"renumbered the nodes by {scores[-1].method}, hottest first",
        lambda: pipeline.reorder_graph(graph, scores[-1], out / "reordered"),
    )
    layout = step(
        "wrote four tiers, the SSD tier striped over two directories",
        lambda: pipeline.layout(reordered, out / "layout", ssd=[out / "ssd0", out / "ssd1"], **TIER_SIZES),
    )
    return layout, evaluation


def show_hit_rates(evaluation: Evaluation) -> None:
    """Print the hit rates by score and cache size."""
    columns = ("rows cached", *(f"{100 * share:g} %" for share in evaluation.shares))
    rows = [(name, *(f"{100 * rate:.1f} %" for rate in rates)) for name, rates in evaluation.hit_rates.items()]
    print_parts(Table("Feature reads served by the cache, by the score that fills it", columns, rows))


def show_tiers(layout: Layout, read: dict[str, int]) -> None:
    """Print the rows of each tier, and how many rows the training read from each."""
    entry, reads = layout.type_layout(layout.feature_types[0]), max(1, sum(read.values()))
    rows = []
    for place, count in read.items():
        tier = place if place in TIERS else "ssd"
        held = (
            f"{format_count(entry.ranges[tier][0])} .. {format_count(entry.ranges[tier][1])}",
            format_count(entry.rows(tier)),
            format_bytes(entry.rows(tier) * entry.row_bytes),
            f"{entry.rows(tier) / entry.num_nodes:.1%}",
        )
        name = {"ssd": "ssd, buffered", "read": "ssd, read"}.get(place, place)
        held = held if place in TIERS else ("",) * len(held)
        rows.append((name, *held, format_count(count), f"{count / reads:.1%}"))
    columns = ("tier", "ranks", "rows", "bytes", "fraction of all rows", "rows read", "fraction of all reads")
    print_parts(Table("Rows of each tier, and the reads that it served in training", columns, rows))


def train_three(layout: Path, epochs: int) -> dict[str, dict[str, Any]]:
    """Train GraphSAGE from the tiers and from memory, and an MLP for comparison."""
    options: dict[str, Any] = {"epochs": epochs, "fanouts": FANOUTS, "batch_size": BATCH_SIZE, "seed": SEED}
    runs = {
        "MLP, no neighbors": {"source": "tiers", "model": "mlp"},  # the first run also pays for loading torch
        "GraphSAGE from the tiers": {"source": "tiers"},
        "GraphSAGE from memory": {"source": "memory"},
    }
    return {name: step(f"trained {name}", partial(train, layout, **options, **kind)) for name, kind in runs.items()}


def show_training(runs: dict[str, dict[str, Any]]) -> None:
    """Print losses, accuracy and the digest of all batches."""
    columns = ("training", "digest of all batches", "first loss", "last loss", "test accuracy")
    rows = [
        (name, run["batch_digest"], f"{run['losses'][0]:.4f}", f"{run['losses'][-1]:.4f}", f"{run['test']:.2%}")
        for name, run in runs.items()
    ]
    print_parts(Table("Results of the trainings", columns, rows, left=2))


def compare(runs: dict[str, dict[str, Any]]) -> None:
    """Compare the training from the tiers with the one from memory; exit with an error if they differ."""
    mlp, tiers, memory = runs.values()
    for what, key in (("batches, bit for bit", "batch_digest"), ("losses", "losses"), ("test accuracy", "test")):
        if tiers[key] != memory[key]:
            raise SystemExit(f"demo failed: tiers and memory differ in {what}: {tiers[key]} and {memory[key]}")
    click.echo(f"{DONE} tiers and memory give the same batches (bit for bit), losses and accuracy")
    if tiers["test"] <= mlp["test"]:
        raise SystemExit(f"demo failed: the GNN ({tiers['test']:.2%}) is not better than the MLP ({mlp['test']:.2%})")


def main(argv: Sequence[str] | None = None) -> None:
    """Run the demo from the command line."""
    parser = argparse.ArgumentParser(description="Run the whole chain on generated data.")
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--edges", type=int, default=1_000_000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("demo-out"))
    args = parser.parse_args(argv)
    logging.basicConfig(format="  %(message)s", level=logging.WARNING)
    if args.out.exists() and not (args.out / "data" / "processed" / "meta.json").is_file() and any(args.out.iterdir()):
        parser.exit(1, f"error: {args.out}: has files that the demo did not write; choose another --out\n")
    shutil.rmtree(args.out, ignore_errors=True)
    args.out.mkdir(parents=True)

    rule("prepare")
    layout, evaluation = prepare(args.out, args.nodes, args.edges)
    plot(evaluation, args.out / "hit_rates.png")
    show_hit_rates(evaluation)
    rule("train")
    runs = train_three(layout.path, args.epochs)
    show_tiers(layout, runs["GraphSAGE from the tiers"]["rows"])
    show_training(runs)
    compare(runs)
    rule("done")
    click.echo(f"plot        {args.out / 'hit_rates.png'}")
    click.echo(f"layout      {args.out / 'layout'}")
    for image in layout.images:
        click.echo(f"ssd image   {image}")
    click.echo(f"look again  .venv/bin/tiering info {args.out / 'layout'}")
    click.echo(f"train again .venv/bin/python examples/train_graphsage.py {args.out / 'layout'}")


if __name__ == "__main__":
    main()
