"""`tiering layout`: cut the feature rows into tiers and write what each memory will hold."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import STAGE, Call, Out, flag, takes

_CPU = "Rows in host memory: 64GiB, 20%. [default: all that is left if no --ssd]"
_CACHE = (
    "What the hottest adjacency lists get of --gpu: a fraction such as 30%, or auto: what saves most time. "
    "[default: none]"
)
_SCORES = "For --adjacency-cache and edge features: the scores that R was ordered by."
_COSTS = "For --adjacency-cache: measured costs of accesses, JSON. [default: assumed ones, PCIe 4.0]"
_FIT = (
    "For --adjacency-cache: measure those costs now on this machine's GPU, by sampling and gathering on R (auto) or on "
    "another reordered graph."
)
_EDGES = "Whether features of edges lie in the tiers, next to those of nodes: auto, where R has some."


@takes(*STAGE)
def layout_command(
    call: Call,
    reordered: Annotated[Path, typer.Argument(metavar="R", help="Reordered graph.", show_default=False)],
    out: Out,
    gpu: Annotated[str | None, flag("Rows every GPU holds: 8GiB, 3%.", metavar="SIZE")] = None,
    peer: Annotated[str | None, flag("Rows spread over P GPUs, SIZE on each: 4x8GiB.", metavar="PxSIZE")] = None,
    cpu: Annotated[str | None, flag(_CPU, metavar="SIZE")] = None,
    ssd: Annotated[list[Path] | None, flag("Holds a stripe file; once for each SSD.", metavar="DIR")] = None,
    page: Annotated[str, flag("Unit of SSD reads, a power of two.", metavar="SIZE", default=True)] = "4KiB",
    adjacency_cache: Annotated[str | None, flag(_CACHE, metavar="none|auto|PERCENT")] = None,
    scores: Annotated[Path | None, flag(_SCORES, metavar="S")] = None,
    access_costs: Annotated[Path | None, flag(_COSTS, metavar="FILE")] = None,
    fit: Annotated[str | None, flag(_FIT, metavar="auto|GRAPH")] = None,
    edge_features: Annotated[str, flag(_EDGES, metavar="auto|none", default=True)] = "auto",
) -> None:
    """Cut the feature rows into tiers, hottest first, and write the files each tier is loaded from.

    With --adjacency-cache, the GPU's memory is shared with the hottest adjacency lists.
    """
    from tiering import pipeline
    from tiering.layout import LayoutOptions

    options = LayoutOptions.of(gpu, peer, cpu, ssd or [], page, adjacency_cache, access_costs, fit, edge_features)
    call.run_stage(pipeline.predict_layout, pipeline.layout, reordered, out, options, scores=scores)
