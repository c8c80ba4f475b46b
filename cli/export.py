"""`tiering export`: write what other programs read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tiering.units import format_bytes

from . import options as opts
from .describe import print_forecast
from .options import option
from .output import print_fields, print_json, print_line


def export_command(
    layout: Annotated[
        Path, typer.Argument(metavar="L", help="Layout; or a graph, reordered or not.", show_default=False)
    ],
    to: Annotated[str, option("Whose format.", "--to", metavar="graphbolt|wholegraph|pyg|dgl|raw")],
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
    """Write adjacency, features, labels and splits for another program, and say how it reads them."""
    from tiering import pipeline

    if dry_run:
        forecast = pipeline.predict_export(
            layout, to, out, original_order=original_order, threads=threads, memory=memory
        )
        print_forecast(forecast, json)
        return
    made = pipeline.export_layout(
        layout, to, out, original_order=original_order, threads=threads, memory=memory, force=force,
        verify=not no_verify,
    )  # fmt: skip
    if json:
        print_json(made.summary())
        return
    ids = "ranks" if made.order == "rank" else "original ids"
    print_fields({"export": str(made.path), "format": made.to, "node ids": ids, "size": format_bytes(made.bytes)})
    for line in made.lines:
        print_line(line)
