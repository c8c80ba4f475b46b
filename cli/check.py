"""`tiering check`: every problem of an artifact."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tiering.errors import InputError
from tiering.units import parse_size

from .options import Call, Common, Group, flag, takes
from .output import print_json, print_line

_LOOKED_AT = {
    "structure": "manifest, sizes, index arrays; --full reads every byte",
    "sample": "manifest, sizes, index arrays, a sample of the checksums",
    "full": "manifest, sizes, index arrays, every edge, every checksum",
}


@takes(Group(Common, ("threads", "json")))
def check_command(
    call: Call,
    path: Annotated[Path, typer.Argument(metavar="PATH", help="Any artifact.", show_default=False)],
    full: Annotated[
        bool, flag("Read everything: checksums, every edge, files referred to.", "--full", default=True)
    ] = False,
    sample: Annotated[
        str, flag("With --full: blocks of 64 MiB to compare, such as 1%.", metavar="SHARE", default=True)
    ] = "100%",
) -> None:
    """Print every problem of an artifact and of those inside it. Exit code 1 if there is any."""
    from tiering.artifacts.artifact import VerifyReport
    from tiering.formats.registry import check_artifact

    level, share = "full" if full else "structure", parse_size(sample, "sample").fraction
    if not share:
        raise InputError(f"sample: expected a share of the blocks such as 1%, found {sample!r}")
    if share < 1 and not full:
        raise InputError("sample: only --full compares blocks with checksums; give both, or neither")
    report = VerifyReport(int(call.threads), share)
    problems = check_artifact(path, level, report)
    if call.json:
        listed = [{"where": p.where, "message": p.message, "kind": p.kind} for p in problems]
        document = {"path": str(path), "level": level, "sound": not problems, "problems": listed}
        print_json({**document, "coverage": report.to_json()} if full else document)
    else:
        for problem in problems:
            print_line(str(problem))
        verdict = f"{len(problems)} problem{'s' if len(problems) > 1 else ''}" if problems else "sound"
        if full:
            print_line(str(report))
        print_line(f"{path}: {verdict} ({_LOOKED_AT['sample' if share < 1 else level]})")
    if problems:
        raise typer.Exit(1)
