"""`tiering check`: every problem of an artifact."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tiering.errors import InputError
from tiering.units import parse_size, parse_threads

from .options import JsonOption, ThreadsOption
from .output import print_json, print_line


def check_command(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="Any artifact.", show_default=False)],
    full: Annotated[
        bool, typer.Option("--full", help="Read everything: checksums, every edge, files referred to.")
    ] = False,
    sample: Annotated[
        str, typer.Option("--sample", metavar="SHARE", help="With --full: blocks of 64 MiB to compare, such as 1%.")
    ] = "100%",
    threads: ThreadsOption = "auto",
    json: JsonOption = False,
) -> None:
    """Print every problem of an artifact and of those inside it. Exit code 1 if there is any."""
    from tiering.artifacts.artifact import Coverage
    from tiering.formats.registry import check_artifact

    level, coverage = "full" if full else "structure", Coverage()
    share = _share(sample, full)
    problems = check_artifact(path, level, parse_threads(threads), share, coverage)
    if json:
        found = [{"where": p.where, "message": p.message, "kind": p.kind} for p in problems]
        told = {"path": str(path), "level": level, "sound": not problems, "problems": found}
        print_json({**told, "coverage": vars(coverage)} if full else told)
    else:
        for problem in problems:
            print_line(str(problem))
        verdict = f"{len(problems)} problem{'s' if len(problems) > 1 else ''}" if problems else "sound"
        if full:
            print_line(str(coverage))
        looked = "sample" if share < 1 else level
        print_line(f"{path}: {verdict} ({_LEVELS[looked]})")
    if problems:
        raise typer.Exit(1)


def _share(text: str, full: bool) -> float:
    share = parse_size(text, "sample").fraction
    if not share:
        raise InputError(f"sample: expected a share of the blocks such as 1%, found {text!r}")
    if share < 1 and not full:
        raise InputError("sample: only --full compares blocks with checksums; give both, or neither")
    return share


_LEVELS = {
    "structure": "manifest, sizes, index arrays; --full reads every byte",
    "sample": "manifest, sizes, index arrays, a sample of the checksums",
    "full": "manifest, sizes, index arrays, every edge, every checksum",
}
