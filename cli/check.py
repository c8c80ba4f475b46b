"""`tiering check`: every problem of an artifact."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tiering.units import parse_threads

from .options import JsonOption, ThreadsOption
from .output import print_json, print_line


def check_command(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="Any artifact.", show_default=False)],
    full: Annotated[
        bool, typer.Option("--full", help="Read everything: checksums, every edge, files referred to.")
    ] = False,
    threads: ThreadsOption = "auto",
    json: JsonOption = False,
) -> None:
    """Print every problem of an artifact and of those inside it. Exit code 1 if there is any."""
    import tiering

    level = "full" if full else "structure"
    problems = tiering.check(path, level, parse_threads(threads))
    if json:
        found = [{"where": p.where, "message": p.message, "kind": p.kind} for p in problems]
        print_json({"path": str(path), "level": level, "sound": not problems, "problems": found})
    else:
        for problem in problems:
            print_line(str(problem))
        verdict = f"{len(problems)} problem{'s' if len(problems) > 1 else ''}" if problems else "sound"
        print_line(f"{path}: {verdict} ({_LEVELS[level]})")
    if problems:
        raise typer.Exit(1)


_LEVELS = {
    "structure": "manifest, sizes, index arrays; --full reads every byte",
    "full": "manifest, sizes, index arrays, every edge, every checksum",
}
