"""`tiering layout`: cut the feature rows into tiers and write what each memory will hold."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tiering.units import parse_threads

from .describe import print_artifact
from .options import ForceOption, JsonOption, OutOption, ThreadsOption


def layout_command(
    reordered: Annotated[Path, typer.Argument(metavar="R", help="Reordered graph.", show_default=False)],
    out: OutOption,
    gpu: Annotated[str, typer.Option("--gpu", metavar="SIZE", help="Rows every GPU holds: 8GiB, 3%.")] = "0",
    peer: Annotated[
        str, typer.Option("--peer", metavar="PxSIZE", help="Rows spread over P GPUs, SIZE each: 4x8GiB.")
    ] = "0",
    cpu: Annotated[str, typer.Option("--cpu", metavar="SIZE", help="Rows in host memory: 64GiB, 20%.")] = "0",
    ssd: Annotated[
        list[Path] | None,
        typer.Option("--ssd", metavar="DIR", help="Where an SSD image goes; once per SSD.", show_default=False),
    ] = None,
    page: Annotated[str, typer.Option("--page", metavar="SIZE", help="Unit of SSD reads, a power of two.")] = "4KiB",
    threads: ThreadsOption = "auto",
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Cut the feature rows into tiers, hottest first, and write the files each tier is loaded from."""
    from tiering import pipeline

    layout = pipeline.layout(
        reordered, out, gpu=gpu, peer=peer, cpu=cpu, ssd=ssd or [], page=page,
        threads=parse_threads(threads), force=force,
    )  # fmt: skip
    print_artifact(layout, json)
