"""`tiering layout`: cut the feature rows into tiers and write what each memory will hold."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tiering.units import parse_threads

from .describe import print_artifact
from .describe_forecast import print_forecast
from .options import DryRunOption, ForceOption, JsonOption, MemoryOption, NoVerifyOption, OutOption, ThreadsOption


def _size(name: str, metavar: str, text: str) -> Any:
    return typer.Option(name, metavar=metavar, help=text, show_default=False)


def layout_command(
    reordered: Annotated[Path, typer.Argument(metavar="R", help="Reordered graph.", show_default=False)],
    out: OutOption,
    gpu: Annotated[str | None, _size("--gpu", "SIZE", "Rows every GPU holds: 8GiB, 3%.")] = None,
    peer: Annotated[str | None, _size("--peer", "PxSIZE", "Rows spread over P GPUs, SIZE on each: 4x8GiB.")] = None,
    cpu: Annotated[
        str | None, _size("--cpu", "SIZE", "Rows in host memory: 64GiB, 20%. [default: all that is left if no --ssd]")
    ] = None,
    ssd: Annotated[list[Path] | None, _size("--ssd", "DIR", "Holds an SSD image; once for each SSD.")] = None,
    page: Annotated[str, typer.Option("--page", metavar="SIZE", help="Unit of SSD reads, a power of two.")] = "4KiB",
    adjacency_cache: Annotated[
        str | None,
        _size(
            "--adjacency-cache",
            "none|auto|SHARE",
            "What the hottest adjacency lists get of --gpu: a share such as 30%, or auto: what saves most time. "
            "[default: none]",
        ),
    ] = None,
    scores: Annotated[
        Path | None, _size("--scores", "S", "For --adjacency-cache: the scores that R was ordered by.")
    ] = None,
    access_costs: Annotated[
        Path | None,
        _size(
            "--access-costs",
            "FILE",
            "For --adjacency-cache: measured costs of accesses, JSON. [default: assumed ones, PCIe 4.0]",
        ),
    ] = None,
    split: Annotated[str | None, typer.Option("--split", hidden=True)] = None,
    gpu_times: Annotated[Path | None, typer.Option("--gpu-times", hidden=True)] = None,
    memory: MemoryOption = "auto",
    threads: ThreadsOption = "auto",
    force: ForceOption = False,
    no_verify: NoVerifyOption = False,
    dry_run: DryRunOption = False,
    json: JsonOption = False,
) -> None:
    """Cut the feature rows into tiers, hottest first, and write the files each tier is loaded from.

    With --adjacency-cache, the GPU's memory is shared with the hottest adjacency lists.
    """
    from tiering import pipeline
    from tiering.layout import LayoutOptions

    old_names = {name: value for name, value in (("split", split), ("gpu_times", gpu_times)) if value is not None}
    options = LayoutOptions.of(gpu, peer, cpu, ssd or [], page, adjacency_cache, access_costs, **old_names)
    if dry_run:
        forecast = pipeline.predict_layout(reordered, out, options, scores=scores, threads=threads, memory=memory)
        print_forecast(forecast, json)
        return
    layout = pipeline.layout(
        reordered, out, options, scores=scores, threads=parse_threads(threads), memory=memory, force=force,
        verify=not no_verify,
    )  # fmt: skip
    print_artifact(layout, json)
