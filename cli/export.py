"""`tiering export`: write a layout or graph as files for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tiering.units import format_bytes

from .describe import print_estimate
from .options import Call, Common, Group, flag, takes
from .output import print_fields, print_json


@takes(Group(Common))
def export_command(
    call: Call,
    layout: Annotated[
        Path, typer.Argument(metavar="L", help="Layout; or a graph, reordered or not.", show_default=False)
    ],
    out: Annotated[Path, flag("Directory to write.", "--out", "-o", metavar="DIR")],
    original_order: Annotated[
        bool, flag("Nodes have the ids of the source, not their ranks.", "--original-order")
    ] = False,
) -> None:
    """Write adjacency, features, labels and splits as .npy files for other programs."""
    from tiering import pipeline

    asked = {"original_order": original_order, "threads": call.threads, "memory": call.memory}
    if call.dry_run:
        print_estimate(pipeline.estimate_export(layout, out, **asked), call.json)
        return
    export = pipeline.export_layout(layout, out, force=call.force, verify=not call.no_verify, **asked)
    if call.json:
        print_json(export.summary())
        return
    ids = "ranks" if export.order == "rank" else "original ids"
    print_fields({"export": str(export.path), "node ids": ids, "size": format_bytes(export.bytes)})
