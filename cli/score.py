"""`tiering score`: predict how often each node's features will be read."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tiering.units import parse_threads

from .describe import print_artifact
from .describe_forecast import print_forecast
from .options import (
    BatchSizeOption,
    DryRunOption,
    ForceOption,
    FrontierOption,
    GraphArgument,
    JsonOption,
    MemoryOption,
    MetapathsOption,
    NoVerifyOption,
    NumWalksOption,
    OptionalFanouts,
    OutOption,
    RestartOption,
    SamplerOption,
    SeedOption,
    ThreadsOption,
    TrainOption,
    WalkLengthOption,
    parse_metapaths,
)

METHODS = "auto|degree|rpr|wrpr|presample|vip|hybrid"
_HELP = (
    "degree: out-degree. rpr: reverse PageRank. wrpr: reverse PageRank weighted to the training nodes. "
    "presample: count some sampled epochs. vip: expected reads from fanouts and degrees. "
    "hybrid: presample corrected by vip. "
    "auto: hybrid if --fanouts is given, else wrpr if there are training nodes, else rpr."
)


def _of(panel: str, metavar: str, text: str, default: bool = True) -> Any:
    return typer.Option(metavar=metavar, help=text, rich_help_panel=panel, show_default=default)


def _rank(metavar: str, text: str) -> Any:
    return _of("Reverse PageRank: rpr, wrpr", metavar, text)


def _count(metavar: str, text: str, default: bool = True) -> Any:
    return _of("Counted epochs: presample, hybrid", metavar, text, default)


def score_command(
    context: typer.Context,
    graph: GraphArgument,
    out: OutOption,
    method: Annotated[str, typer.Option("--method", metavar=METHODS, help=_HELP)] = "auto",
    train: TrainOption = None,
    fanouts: OptionalFanouts = None,
    batch_size: BatchSizeOption = 1024,
    frontier: FrontierOption = "all",
    sampler: SamplerOption = "uniform",
    num_walks: NumWalksOption = None,
    walk_length: WalkLengthOption = None,
    restart: RestartOption = None,
    metapaths: MetapathsOption = None,
    epochs: Annotated[int, _count("K", "Epochs to sample.")] = 2,
    first_epoch: Annotated[int, _count("N", "Number of the first; with the seed of a run, that run's own.")] = 0,
    prior_weight: Annotated[
        float | None,
        _count("A", "hybrid: epochs that the prior counts for. Default: found from the counts.", default=False),
    ] = None,
    damping: Annotated[float, _rank("D", "Share of a score that is handed on.")] = 0.85,
    sweeps: Annotated[int, _rank("N", "Passes of wrpr over the edges.")] = 5,
    teleport: Annotated[str, _rank("uniform|train", "Who gets the rest: all or training nodes.")] = "uniform",
    tolerance: Annotated[float, _rank("T", "rpr stops when the change falls below it.")] = 1e-9,
    seed: SeedOption = 0,
    threads: ThreadsOption = "auto",
    memory: MemoryOption = "auto",
    force: ForceOption = False,
    no_verify: NoVerifyOption = False,
    dry_run: DryRunOption = False,
    json: JsonOption = False,
) -> None:
    """Predict how often training will read each node's features, and where fanouts are given, its adjacency."""
    from tiering import pipeline
    from tiering.scores.request import OPTIONS

    # Only what stands on the command line: an option that does not matter to the method is noted, a default is not.
    given = {name: context.params[name] for name in ("seed", *OPTIONS) if _stands(context, name)}
    if "metapaths" in given:
        given["metapaths"] = parse_metapaths(metapaths)
    if dry_run:
        forecast = pipeline.predict_score(
            graph, out, method=method, train=train, threads=threads, memory=memory, **given
        )
        print_forecast(forecast, json)
        return
    scores = pipeline.score(
        graph,
        out,
        method=method,
        train=train,
        threads=parse_threads(threads),
        memory=memory,
        force=force,
        verify=not no_verify,
        **given,
    )
    print_artifact(scores, json)


def _stands(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name in ("COMMANDLINE", "ENVIRONMENT")
