"""`tiering export`: write what other programs read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tiering.errors import InputError
from tiering.units import format_bytes

from . import options as opts
from .describe import print_forecast
from .options import option
from .output import print_fields, print_json, print_line, print_table

if TYPE_CHECKING:
    from tiering.exports import RawExport


def export_command(
    layout: Annotated[
        Path, typer.Argument(metavar="L", help="Layout; or a graph, reordered or not.", show_default=False)
    ],
    to: Annotated[str, option("Whose format.", "--to", metavar="graphbolt|wholegraph|pyg|dgl|raw")],
    out: Annotated[Path | None, option("Directory to write.", "--out", "-o", metavar="DIR")] = None,
    original_order: Annotated[
        bool, option("Nodes have the ids of the source, not their ranks.", "--original-order")
    ] = False,
    device: Annotated[
        list[Path] | None,
        option(
            "With --to raw: write the ssd images onto block devices, one for each, without a file system. What lies "
            "there is lost.",
            "--device",
            metavar="DEVICE",
        ),
    ] = None,
    overwrite: Annotated[
        list[Path] | None,
        option("Device that may be written although something lies on it; to be given twice.", "--overwrite"),
    ] = None,
    check: Annotated[bool, option("Compare devices that were written; write nothing.", "--check")] = False,
    memory: opts.MemoryOption = "auto",
    threads: opts.ThreadsOption = "auto",
    force: opts.ForceOption = False,
    no_verify: opts.NoVerifyOption = False,
    dry_run: opts.DryRunOption = False,
    json: opts.JsonOption = False,
) -> None:
    """Write adjacency, features, labels and splits for another program, and say how it reads them."""
    from tiering import pipeline

    if device:
        if to != "raw" or original_order:
            raise InputError("device: expected --to raw, in the order of the layout; leave --device or these out")
        if force or no_verify:
            raise InputError(
                "--force and --no-verify do not go with --device: what may be lost is named by --overwrite, and all "
                "that is written is compared; leave them out"
            )
        if check and (overwrite or dry_run or out):
            raise InputError("--check writes nothing; leave --overwrite, --dry-run and --out out")
        named = overwrite or []
        if dry_run:
            planned = pipeline.predict_devices(layout, device, overwrite=named)
        else:
            planned = pipeline.export_devices(layout, device, overwrite=named, record=out, check=check)
        _print_devices(planned, "would be written" if dry_run else "whole" if check else "written and read back", json)
        return
    if overwrite or check:
        raise InputError("--overwrite and --check go with --device")
    if out is None:
        raise InputError("out: expected a directory; give one with --out")
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


def _print_devices(made: RawExport, state: str, json: bool) -> None:
    if json:
        print_json({**made.to_json(), "state": state})
        return
    rows = [
        (d.image, d.device, d.model or "-", format_bytes(d.device_bytes), format_bytes(d.bytes), d.found or "nothing")
        for d in made.devices
    ]
    print_table(
        f"SSD images of {made.layout}: {state}",
        ("image", "device", "model", "size", "written", "found on it"),
        rows,
        left=3,
    )
