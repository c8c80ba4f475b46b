"""The command tree."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any

import typer

from tiering.version import __version__

from . import (
    check,
    datasets,
    doctor,
    evaluate,
    export,
    info,
    layout,
    reorder,
    run_config,
    score,
    source,
    trace,
)
from .options import GRAPHS, INSPECT, TIERS

# typer carries click inside itself in new releases and depends on it in old ones: the root of the usage errors is
# found through the one class that both export.
UsageError: type[Exception] = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")

app = typer.Typer(
    name="tiering",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Environment: TIERING_DEBUG=1 shows the traceback of an error, like --debug.",
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"tiering {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error. Works after the command too.")
    ] = False,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show version.")] = False,
) -> None:
    """Decide offline which feature rows lie in GPU memory, host memory and on SSD, and train a GNN from there.

    dataset --import--> graph --score--> scores --reorder--> reordered graph --layout--> tiers on disk --> your training

    Each step reads directories and writes one; it is complete or not there at all.
    """


app.command("import", rich_help_panel=GRAPHS)(source.import_command)
app.command("generate", rich_help_panel=GRAPHS)(source.generate_command)
app.command("score", rich_help_panel=TIERS)(score.score_command)
app.command("evaluate", rich_help_panel=TIERS)(evaluate.evaluate_command)
app.command("reorder", rich_help_panel=TIERS)(reorder.reorder_command)
app.command("layout", rich_help_panel=TIERS)(layout.layout_command)
app.command("export", rich_help_panel=TIERS)(export.export_command)
app.command("run", rich_help_panel=TIERS)(run_config.run_command)
app.command("check", rich_help_panel=INSPECT)(check.check_command)
app.command("datasets", rich_help_panel=INSPECT)(datasets.datasets_command)
app.command("info", rich_help_panel=INSPECT)(info.info_command)
app.command("doctor", rich_help_panel=INSPECT)(doctor.doctor_command)
app.command("trace", rich_help_panel=INSPECT)(trace.trace_command)


@cache
def commands() -> Any:
    """The tree as click runs it; to make it takes as long as a short command."""
    return typer.main.get_command(app)
