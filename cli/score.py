"""`tiering score`: predict how often each node's features will be read."""

from __future__ import annotations

from typing import Annotated

import typer

from tiering.units import parse_threads

from .describe import print_artifact
from .options import ForceOption, GraphArgument, JsonOption, OutOption, SeedOption, ThreadsOption, TrainOption

METHODS = "degree|rpr|wrpr"


def score_command(
    graph: GraphArgument,
    out: OutOption,
    method: Annotated[
        str,
        typer.Option(
            "--method",
            metavar=METHODS,
            help="degree: out-degree. rpr: reverse PageRank. wrpr: reverse PageRank weighted to the training nodes.",
        ),
    ] = "wrpr",
    train: TrainOption = None,
    damping: Annotated[float, typer.Option(help="Share of a score that is handed on.")] = 0.85,
    sweeps: Annotated[int, typer.Option(help="Passes of wrpr over the edges.")] = 5,
    teleport: Annotated[
        str, typer.Option(metavar="uniform|train", help="Who gets the rest: all or training nodes.")
    ] = "uniform",
    tolerance: Annotated[float, typer.Option(help="rpr stops when the change falls below it.")] = 1e-9,
    seed: SeedOption = 0,
    threads: ThreadsOption = "auto",
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Predict from the graph alone how often training will read each node's features."""
    from tiering import pipeline

    scores = pipeline.score(
        graph, out, method=method, train=train, damping=damping, sweeps=sweeps, teleport=teleport,
        tolerance=tolerance, seed=seed, threads=parse_threads(threads), force=force,
    )  # fmt: skip
    print_artifact(scores, json)
