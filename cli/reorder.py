"""`tiering reorder`: renumber the nodes, hottest first."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tiering.units import parse_threads

from .describe import print_artifact
from .options import ForceOption, GraphArgument, JsonOption, MemoryOption, OutOption, ThreadsOption


def reorder_command(
    graph: GraphArgument,
    scores: Annotated[Path, typer.Option("--scores", metavar="S", help="Scores of this graph.", show_default=False)],
    out: OutOption,
    features: Annotated[
        bool, typer.Option("--features", help="Write a reordered feature table too; a layout does not need it.")
    ] = False,
    memory: MemoryOption = "auto",
    threads: ThreadsOption = "auto",
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Renumber the nodes by score, hottest first: adjacency, labels, splits, edge data, and the way back."""
    from tiering import pipeline

    reordered = pipeline.reorder(
        graph, scores, out, features=features, memory=memory, threads=parse_threads(threads), force=force
    )
    print_artifact(reordered, json)
