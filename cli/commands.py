"""The command tree."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from tiering.version import __version__

# typer carries click inside itself in new releases and depends on it in old ones: the root of the usage errors is
# found through the one class that both export.
UsageError: type[Exception] = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")

GRAPHS, TIERS, INSPECT = "Get a graph", "Prepare tiers", "Look and measure"
COMMANDS = {
    "import": ("source", GRAPHS, "Import a dataset as a graph: adjacency by destination, labels, splits."),
    "generate": ("source", GRAPHS, "Generate a dataset in IGB's format."),
    "score": ("stages", TIERS, "Predict how often training will read each node's features, and its adjacency."),
    "evaluate": ("evaluate", TIERS, "Count the reads of sampled epochs: what would a cache of each score serve?"),
    "reorder": ("stages", TIERS, "Renumber the nodes by score, hottest first."),
    "layout": ("stages", TIERS, "Cut the feature rows into tiers and write the files each is loaded from."),
    "export": ("stages", TIERS, "Write adjacency, features, labels and splits as .npy files for other programs."),
    "run": ("stages", TIERS, "Run the whole chain from one file; started again, it goes on where it stopped."),
    "check": ("look", INSPECT, "Print every problem of an artifact and of those inside it."),
    "datasets": ("look", INSPECT, "List published datasets with what importing them takes."),
    "info": ("look", INSPECT, "Say what an artifact is, or what this installation is."),
    "doctor": ("look", INSPECT, "Say what this machine gives: memory, io_uring, GPUs, speed of SSDs."),
    "trace": ("trace", INSPECT, "Replay epochs of the loader without a model: how fast batches come."),
}
"""Module, group and summary of each command; the function is ``NAME_command``."""
_SETTINGS: dict[str, Any] = {
    "add_completion": False, "rich_markup_mode": "rich", "context_settings": {"help_option_names": ["-h", "--help"]}
}  # fmt: skip


class _Commands(TyperGroup):
    """The commands, each loaded when it is run: its tables of options load what they belong to."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = {
            name: TyperCommand(name, help=summary, rich_help_panel=panel)
            for name, (_, panel, summary) in COMMANDS.items()
        }

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return a command's name, the command and its arguments."""
        name, _, rest = super().resolve_command(ctx, args)
        return name, None if name is None else _load(name), rest


@cache
def _load(name: str) -> Any:
    module = import_module(f".{COMMANDS[name][0]}", __package__)
    alone = typer.Typer(**_SETTINGS)
    alone.command(name)(getattr(module, f"{name}_command"))
    return typer.main.get_command(alone)


app = typer.Typer(
    name="tiering", cls=_Commands, no_args_is_help=True, **_SETTINGS,
    epilog="Environment: TIERING_DEBUG=1 shows the traceback of an error, like --debug.",
)  # fmt: skip


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


@cache
def commands() -> Any:
    """Return the tree as click runs it; making it takes as long as a short command."""
    return typer.main.get_command(app)
