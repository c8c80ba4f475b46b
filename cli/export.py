"""`tiering export`: write a layout or graph as files for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tiering.units import format_bytes

from . import options as opts
from .describe import print_forecast
from .options import option
from .output import print_fields, print_json


def export_command(
    layout: Annotated[
        Path, typer.Argument(metavar="L", help="Layout; or a graph, reordered or not.", show_default=False)
    ],
    out: Annotated[Path, option("Directory to write.", "--out", "-o", metavar="DIR")],
    original_order: Annotated[
        bool, option("Nodes have the ids of the source, not their ranks.", "--original-order")
    ] = False,
    memory: opts.MemoryOption = "auto",
    threads: opts.ThreadsOption = "auto",
    force: opts.ForceOption = False,
    no_verify: opts.NoVerifyOption = False,
    dry_run: opts.DryRunOption = False,
    json: opts.JsonOption = False,
) -> None:
    """Write adjacency, features, labels and splits as .npy files for other programs."""
    from tiering import pipeline

    if dry_run:
        forecast = pipeline.predict_export(layout, out, original_order=original_order, threads=threads, memory=memory)
        print_forecast(forecast, json)
        return
    export = pipeline.export_layout(
        layout, out, original_order=original_order, threads=threads, memory=memory, force=force, verify=not no_verify
    )
    if json:
        print_json(export.summary())
        return
    ids = "ranks" if export.order == "rank" else "original ids"
    print_fields({"export": str(export.path), "node ids": ids, "size": format_bytes(export.bytes)})
