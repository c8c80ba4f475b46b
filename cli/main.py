"""Entry point: builds the command tree, runs one command, turns errors into one line and an exit code.

Exit codes: 0 done; 1 an error the message explains (or `tiering check` found problems); 2 wrong usage; 70 a bug in
this package; 130 interrupted.
"""

from __future__ import annotations

import os
import shlex
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer

from tiering.version import __version__

from . import bench, check, evaluate, info, layout, reorder, run_config, score, source, transpose
from .options import GRAPHS, INSPECT, TIERS

USAGE, INTERNAL, INTERRUPTED = 2, 70, 130
RESUMABLE = {"import", "score", "reorder", "layout", "run"}
"""Commands that go on where they were stopped."""

# typer carries click inside itself in new releases and depends on it in old ones: the root of the usage errors is
# found through the one class that both export.
_UsageError: type[Exception] = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")

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
app.command("transpose", rich_help_panel=GRAPHS)(transpose.transpose_command)
app.command("score", rich_help_panel=TIERS)(score.score_command)
app.command("evaluate", rich_help_panel=TIERS)(evaluate.evaluate_command)
app.command("reorder", rich_help_panel=TIERS)(reorder.reorder_command)
app.command("layout", rich_help_panel=TIERS)(layout.layout_command)
app.command("run", rich_help_panel=TIERS)(run_config.run_command)
app.command("check", rich_help_panel=INSPECT)(check.check_command)
app.command("info", rich_help_panel=INSPECT)(info.info_command)
app.command("bench", rich_help_panel=INSPECT)(bench.bench_command)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    argv
        Arguments without the program's name; ``None`` is ``sys.argv[1:]``.

    Returns
    -------
    int
        Exit code, see the module. Nothing is raised for an error of the user or the machine: it is one line on
        standard error, with the traceback before it if ``--debug`` stands anywhere or ``TIERING_DEBUG`` is set.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments or os.environ.get("TIERING_DEBUG", "") not in ("", "0")
    arguments = [argument for argument in arguments if argument != "--debug"]
    try:
        code = typer.main.get_command(app).main(arguments, prog_name="tiering", standalone_mode=False)
        sys.stdout.flush()
        if code == INTERRUPTED:
            raise KeyboardInterrupt  # typer turned it into an exit code
        return code if isinstance(code, int) else 0
    except (Exception, KeyboardInterrupt) as error:
        if isinstance(error, BrokenPipeError):
            return _reader_left()
        if debug:
            traceback.print_exc()
        code, message = describe_error(error)
        if code == INTERRUPTED and RESUMABLE & set(arguments[:1]):
            message += f"; what is finished is kept, go on with: {shlex.join(['tiering', *arguments])}"
        if message:
            print(message, file=sys.stderr, flush=True)
        return code


def describe_error(error: BaseException) -> tuple[int, str]:
    """Exit code and the one line to print for an error that ended a command; an empty line for help."""
    from tiering.errors import InternalError, RefusedError, TieringError

    if isinstance(error, _UsageError):
        return USAGE, _usage_line(error)
    if isinstance(error, (KeyboardInterrupt, typer.Abort)):
        return INTERRUPTED, "interrupted"
    if isinstance(error, TieringError) and not isinstance(error, InternalError):
        return error.exit_code, f"error: {one_line(_text(error))}"
    if isinstance(error, MemoryError):
        return 1, f"error: out of memory{_detail(error)}; use a smaller input or a machine with more memory"
    if isinstance(error, OSError):
        return 1, f"error: {one_line(_text(error))}"
    if isinstance(error, RefusedError):
        return 1, f"error: {one_line(str(error))}; an input is damaged: run `tiering check --full` on each"
    return INTERNAL, (
        f"internal error: {type(error).__name__}: {one_line(_text(error))}; "
        "this is a bug in tiering: run again with --debug and report what it prints"
    )


def one_line(text: str) -> str:
    """Text without line breaks and runs of blanks."""
    return " ".join(text.split())


def _text(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror and error.errno is not None:
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{error.strerror}"
    return str(error) or type(error).__name__


def _detail(error: MemoryError) -> str:
    return f" ({one_line(str(error))})" if str(error) else ""


def _usage_line(error: Exception) -> str:
    text = one_line(error.format_message()) if hasattr(error, "format_message") else one_line(str(error))
    if type(error).__name__ == "NoArgsIsHelpError":
        return ""  # the help was printed already
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "tiering"
    return f"error: {text.rstrip('.')}; see `{command} --help`"


def _reader_left() -> int:
    """Standard output was closed early (`tiering info G | head`): no error of ours, but say so to the caller."""
    # Python would flush again at exit and complain: give it a place where that works.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 141


def run() -> None:
    """Console entry point."""
    raise SystemExit(main())
