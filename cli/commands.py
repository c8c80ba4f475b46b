"""The command tree."""

from __future__ import annotations

import os
from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import typer
from typer.core import TyperGroup

from tiering.errors import InputError
from tiering.version import __version__

from .parameters import OPTIONS, Command, write_sections

GRAPHS, TIERS, INSPECT = "Get a graph", "Prepare tiers", "Inspect and measure"
COMMANDS = {
    "import": ("source", GRAPHS, "Import a dataset as a graph: adjacency by destination, labels, splits."),
    "generate": ("source", GRAPHS, "Generate a dataset in IGB's format."),
    "score": ("stages", TIERS, "Predict how often training will read each node's features, and its adjacency."),
    "evaluate": ("evaluate", TIERS, "Count the reads of sampled epochs that a cache filled by each score would serve."),
    "plan": ("evaluate", TIERS, "Predict what an epoch reads from SSD for sizes of memory, disks and dtypes."),
    "reorder": ("stages", TIERS, "Renumber the nodes by score, hottest first."),
    "layout": ("stages", TIERS, "Divide the feature rows into tiers and write the file of each tier."),
    "copy": ("look", TIERS, "Copy an artifact and its stripe files to another disk, machine or object store."),
    "export": ("stages", TIERS, "Write adjacency, features, labels and splits as .npy files for other programs."),
    "run": ("stages", TIERS, "Run the whole chain from one TOML file; a rerun resumes at the first unfinished step."),
    "check": ("look", INSPECT, "Check an artifact and the artifacts inside it, and print every problem."),
    "datasets": ("look", INSPECT, "List published datasets, with their sizes and the memory that an import needs."),
    "info": ("look", INSPECT, "Describe an artifact, or this installation."),
    "doctor": ("look", INSPECT, "Describe this machine: memory, io_uring, GPUs, speed of SSDs."),
    "trace": ("trace", INSPECT, "Replay epochs of the loader without a model, and print what limits their speed."),
    "report": ("look", INSPECT, "Write one HTML page: sizes, hit rates, predicted and measured epochs."),
}
"""Module, group and summary of each command; the function is ``NAME_command``."""
_EXIT_CODES = {
    "0": "Done.",
    "1": "An error that the message explains; for `tiering check`: problems were found.",
    "2": "Wrong usage.",
    "70": "A bug in tiering.",
    "128 + N": "Stopped by signal N: 129 SIGHUP, 130 Ctrl-C, 141 standard output closed, 143 SIGTERM.",
}
_SHELLS = {
    "bash": ("~/.local/share/tiering/completion.bash", "~/.bashrc", ". {file}"),
    "zsh": ("~/.local/share/tiering/completion.zsh", "~/.zshrc", "autoload -Uz compinit && compinit; . {file}"),
    "fish": ("~/.config/fish/completions/tiering.fish", None, ""),
}
"""By shell: the file of the completion, the start-up file that reads it, and the line added there."""
_HELP = """Decide offline which feature rows to keep in GPU memory, host memory and on SSD, and train a GNN from them.

dataset --import--> graph --score--> scores --reorder--> reordered graph --layout--> tiers on disk --> your training

Each step reads directories and writes one, completely or not at all. `tiering help COMMAND` explains a command.
"""


class Commands(TyperGroup):
    """The commands, each loaded when it is run: its tables of options load what they belong to."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Return a command; a usage error names one that is spelled much alike."""
        if name not in COMMANDS:
            if ctx.resilient_parsing or name.startswith("-"):
                return None
            alike = get_close_matches(name, COMMANDS, 1) or get_close_matches(name.lower(), COMMANDS, 1)
            hint = f"; did you mean {alike[0]!r}?" if alike else ""
            raise click.UsageError(f"No such command {name!r}{hint}", ctx)
        function = getattr(import_module(f".{COMMANDS[name][0]}", __package__), f"{name}_command")
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command(name, cls=Command)(function)
        return typer.main.get_command(app)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words before the command; ``help`` is a command that is the same as ``--help`` after another."""
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help())
            ctx.exit(2)
        return super().parse_args(ctx, [*args[1:2], "--help"] if args[:1] == ["help"] else args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, the commands by group, and the exit codes."""
        records = (parameter.get_help_record(ctx) for parameter in self.get_params(ctx))
        sections = {OPTIONS: [record for record in records if record is not None]}
        for name, (_, panel, summary) in COMMANDS.items():
            sections.setdefault(panel, []).append((name, summary))
        sections["Exit codes"] = list(_EXIT_CODES.items())
        write_sections(formatter, sections)


def _print_version(ctx: click.Context, param: click.Parameter, asked: bool) -> None:
    if asked:
        click.echo(f"tiering {__version__}")
        ctx.exit()


def _install_completion(ctx: click.Context, param: click.Parameter, shell: str | None) -> None:
    """Write the completion of a shell, by default the user's, and the line that makes the shell read it."""
    if shell is None:
        return
    from click.shell_completion import get_completion_class

    name = shell.lower() or Path(os.environ.get("SHELL", "")).name
    maker = get_completion_class(name) if name in _SHELLS else None
    if maker is None:
        raise InputError(f"--install-completion: expected {', '.join(_SHELLS)}, found {name!r}; give one of them")
    file, start, line = _SHELLS[name]
    path = Path(file).expanduser()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(maker(ctx.command, {}, "tiering", "_TIERING_COMPLETE").source())
    if start is not None:
        profile, wanted = Path(start).expanduser(), line.format(file=path)
        text = profile.read_text() if profile.is_file() else ""
        if wanted not in text.splitlines():
            profile.write_text(f"{text.rstrip(chr(10))}\n{wanted}\n".lstrip())
    click.echo(f"wrote the completion for {name}: {path}; it works in new shells")
    ctx.exit()


def _eager(*names: str, text: str, callback: Callable[..., None], **settings: Any) -> click.Option:
    return click.Option(names, help=text, is_eager=True, expose_value=False, callback=callback, **settings)


commands = Commands(
    name="tiering", help=_HELP, rich_markup_mode=None, callback=lambda debug: None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Environment: TIERING_DEBUG=1 shows the traceback of an error, like --debug.",
    params=[
        click.Option(["--debug"], is_flag=True, help="Show the traceback of an error. Works after the command too."),
        _eager("--version", is_flag=True, callback=_print_version, text="Show version."),
        _eager("--install-completion", metavar="[SHELL]", is_flag=False, flag_value="", callback=_install_completion,
               text="Install completion of commands and options for bash, zsh or fish. Default: the current shell."),
    ],
)  # fmt: skip
