"""`tiering report`: one HTML page about artifacts and what was measured of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tiering.text.units import format_bytes

from .options import Call, Common, Group, argument, flag, takes
from .output import print_result


@takes(Group(Common, ("json",)))
def report_command(
    call: Call,
    sources: Annotated[list[Path], argument("ARTIFACT|JSON..", "Artifacts; JSON of evaluate, plan, trace and doctor.")],
    out: Annotated[Path, flag("Page to write.", "--out", "-o", metavar="FILE.html")],
) -> None:
    """Write one HTML page that needs no network: sizes, skew, hit rates, measured epochs, how all of it was made."""
    from tiering.pipeline import report

    path = report(sources, out)
    size = path.stat().st_size
    text = f"{path}: {format_bytes(size)}; open it in a browser"
    print_result(call.json, {"path": str(path), "bytes": size}, text)
