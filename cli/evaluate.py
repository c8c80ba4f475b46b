"""`tiering evaluate`: what share of the reads each score would serve from a cache, counted by the training sampler."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from tiering.errors import CapabilityError, InputError, MissingError
from tiering.units import format_count, parse_fanouts, parse_threads

from .options import FanoutsOption, GraphArgument, JsonOption, SeedOption, ThreadsOption, TrainOption
from .output import note, print_json, print_line, print_table

if TYPE_CHECKING:
    from tiering.sampling import FrontierRule
    from tiering.scores.evaluate import Evaluation

_PLOT_FORMATS = (".png", ".svg", ".pdf")


def evaluate_command(
    graph: GraphArgument,
    scores: Annotated[
        list[Path] | None,
        typer.Option("--scores", "-s", metavar="S", help="Scores to judge; repeatable.", show_default=False),
    ] = None,
    fanouts: FanoutsOption = "10,10,10",
    batch_size: Annotated[int, typer.Option("--batch-size", metavar="N", help="Training nodes per batch.")] = 1024,
    epochs: Annotated[int, typer.Option("--epochs", metavar="N", help="Epochs to count.")] = 3,
    frontier: Annotated[
        str, typer.Option("--frontier", metavar="all|new", help="Who samples at a hop: all nodes so far, or new ones.")
    ] = "all",
    train: TrainOption = None,
    seed: SeedOption = 0,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE.png", help="Draw the curves.", show_default=False)
    ] = None,
    threads: ThreadsOption = "auto",
    json: JsonOption = False,
) -> None:
    """Count the reads of sampled epochs: what share would a cache of 1 to 40 % serve, filled by each score?"""
    from tiering.formats.graph import Graph
    from tiering.formats.scores import Scores
    from tiering.scores.evaluate import evaluate, named_scores

    if plot is not None:
        _check_plot(plot)
    opened = Graph.open(graph)
    named = named_scores(opened, [Scores.open(path) for path in scores or []])
    result = evaluate(
        opened, named, parse_fanouts(fanouts), batch_size=batch_size, epochs=epochs, train=train, seed=seed,
        frontier=cast("FrontierRule", frontier), threads=parse_threads(threads),
    )  # fmt: skip
    if json:
        print_json({**result.to_json(), "plot": None if plot is None else str(plot)})
    else:
        _print(result)
    if plot is not None:
        from tiering.scores.plot import plot as draw

        draw(result, plot)
        note(f"plot: {plot}")


def _print(result: Evaluation) -> None:
    columns = ("rows cached", *(f"{100 * share:g} %" for share in result.shares))
    rows = [(name, *(f"{rate:.3f}" for rate in rates)) for name, rates in result.rows()]
    print_table("Share of feature reads served", columns, rows)
    print_line(
        f"{format_count(result.accesses)} reads in {format_count(result.batches)} batches "
        f"({format_count(round(result.accesses / max(1, result.batches)))} rows a batch); "
        f"{format_count(result.touched)} of {format_count(result.num_rows)} rows were read at least once"
    )


def _check_plot(plot: Path) -> None:
    """Refuse now what would fail after minutes of sampling."""
    from importlib.util import find_spec

    if plot.suffix.lower() not in _PLOT_FORMATS:
        raise InputError(f"--plot {plot}: expected a file name ending in {', '.join(_PLOT_FORMATS)}")
    if not plot.absolute().parent.is_dir():
        raise MissingError(f"--plot {plot}: the directory {plot.absolute().parent} does not exist; make it first")
    if find_spec("matplotlib") is None:
        raise CapabilityError("--plot needs matplotlib: pip install matplotlib")
