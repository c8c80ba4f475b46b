"""`tiering reorder`: renumber the nodes, hottest first."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tiering.units import parse_threads

from .describe import print_artifact
from .describe_forecast import print_forecast
from .options import (
    DryRunOption,
    ForceOption,
    GraphArgument,
    JsonOption,
    MemoryOption,
    NoVerifyOption,
    OutOption,
    ThreadsOption,
)


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
    no_verify: NoVerifyOption = False,
    dry_run: DryRunOption = False,
    json: JsonOption = False,
) -> None:
    """Renumber the nodes by score, hottest first: adjacency, labels, splits, edge data, and the way back."""
    from tiering import pipeline

    if dry_run:
        forecast = pipeline.predict_reorder(graph, scores, out, features=features, threads=threads, memory=memory)
        print_forecast(forecast, json)
        return
    reordered = pipeline.reorder(
        graph,
        scores,
        out,
        features=features,
        memory=memory,
        threads=parse_threads(threads),
        force=force,
        verify=not no_verify,
    )
    print_artifact(reordered, json)
