"""Entry point: runs one command, turns errors and signals into one line and an exit code.

`tiering --help` lists the exit codes. Signals are handled before anything is loaded that takes time.
"""

from __future__ import annotations

import gc
import json
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType

from tiering import errors
from tiering.memory import require_floor
from tiering.text import progress
from tiering.text.arguments import check_names, check_working_directory

USAGE, INTERNAL, INTERRUPTED = 2, 70, 130
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_NEW_OBJECTS = 50_000  # that begin a collection of garbage: modules make many that live as long as the process
_last = signal.SIGINT
_loading = True  # there is no work yet that a signal would have to stop in order


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command (arguments without the program's name, by default the process's); returns the exit code.

    Errors of the user or the machine are one line on standard error, of JSON with ``--json``.
    """
    errors.flags = {}
    collecting = gc.get_threshold()
    gc.set_threshold(_NEW_OBJECTS)
    try:
        return _run(list(sys.argv[1:] if argv is None else argv))
    finally:
        errors.flags = None
        gc.set_threshold(*collecting)


def _run(arguments: list[str]) -> int:
    debug = "--debug" in arguments or os.environ.get("TIERING_DEBUG", "") not in ("", "0")
    arguments = [argument for argument in arguments if argument != "--debug"]
    progress.kept.clear()
    try:
        require_floor(next((word for word in arguments if not word.startswith("-")), "tiering"))
        check_working_directory()
        check_names(*arguments)
    except errors.TieringError as error:  # nothing that tells errors apart can be loaded either
        message = f"error: {error}"
        progress.note(_as_json(error, 1, message) if "--json" in arguments else message)
        return error.exit_code
    try:
        code = _invoke(arguments)
        sys.stdout.flush()
        return code
    except (Exception, KeyboardInterrupt) as error:
        if isinstance(error, BrokenPipeError):  # standard output was closed early (`tiering info G | head`)
            # Python would flush again at exit and complain: give it a place where that works.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 141
        if debug:
            import traceback

            for line in traceback.format_exc().splitlines():
                progress.note(line)
        code, message = describe_error(error)
        if code == INTERRUPTED:
            code, message = _received()
            if progress.kept:
                message += f"; finished steps are kept; resume with: {shlex.join(['tiering', *arguments])}"
        if message:
            with suppress(OSError):  # a terminal that hung up
                progress.note(_as_json(error, code, message) if "--json" in arguments else message)
        return code


def _invoke(arguments: list[str]) -> int:
    """Run a command and return its exit code; its errors pass."""
    import click

    from .commands import commands

    global _loading
    _loading = False
    if instruction := os.environ.get("_TIERING_COMPLETE"):
        from click.shell_completion import shell_complete

        return shell_complete(commands, {}, "tiering", "_TIERING_COMPLETE", instruction)
    try:
        with commands.make_context("tiering", arguments) as context:
            commands.invoke(context)
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    return 0


def describe_error(error: BaseException) -> tuple[int, str]:
    """Exit code and the one line to print for an error that ended a command; an empty line for help."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED, "interrupted"  # also while modules are loaded: none is needed to say so

    import click

    if isinstance(error, click.ClickException):
        command = getattr(getattr(error, "ctx", None), "command_path", "tiering")
        return USAGE, f"error: {one_line(error.format_message()).rstrip('.')}; see `{command} --help`"
    own = isinstance(error, errors.TieringError)
    if isinstance(error, OSError) and not own and error.strerror and error.errno is not None:
        place = f"{error.filename}: " if error.filename else ""
        error = errors.StorageError(error.errno, f"{place}{error.strerror}")
    kind, text = type(error).__name__, one_line(str(error))
    if isinstance(error, MemoryError) and not own:
        detail = f" ({text})" if text else ""
        return 1, f"error: out of memory{detail}; use a smaller input or a machine with more memory"
    if isinstance(error, (errors.TieringError, OSError)) and not isinstance(error, errors.InternalError):
        return getattr(error, "exit_code", 1), f"error: {errors.name_flags(text) or kind}"
    if isinstance(error, errors.RefusedError):
        return 1, f"error: {text}; an input is damaged: run `tiering check --full` on each"
    return INTERNAL, (
        f"internal error: {kind}: {text or kind}; "
        "this is a bug in tiering: run again with --debug and report what it prints"
    )


def _as_json(error: BaseException, code: int, message: str) -> str:
    kind = type(error).__name__
    return json.dumps({"error": {"type": kind, "message": message.removeprefix("error: "), "exit_code": code}})


def one_line(text: str) -> str:
    """Return text without line breaks and runs of blanks."""
    return " ".join(text.split())


def _received() -> tuple[int, str]:
    """Return exit code and words for the signal that stopped the command."""
    return 128 + _last, "interrupted" if _last == signal.SIGINT else f"stopped by {_last.name}"


def _stop(number: int, frame: FrameType | None) -> None:
    """Stop in order at the first signal, at once at the second, or while modules are loaded."""
    global _last
    _last = signal.Signals(number)
    if _loading:
        code, words = _received()
        os.write(2, f"{words}\n".encode())
        os._exit(code)
    for other in STOPPING:
        if signal.getsignal(other) is _stop:
            signal.signal(other, signal.SIG_DFL)
    raise KeyboardInterrupt


def run() -> None:
    """Run the command line, handling the signals that who started it does not want ignored; its entry point."""
    for number in STOPPING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)
    raise SystemExit(main())
