"""`tiering layout`: cut the feature rows into tiers and write what each memory will hold."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tiering.layout.options import LayoutSettings

from .options import STAGE, Call, Group, Out, flag, takes

_SCORES = "For --adjacency-cache and edge features: the scores that R was ordered by."


@takes(Group(LayoutSettings), *STAGE)
def layout_command(
    call: Call,
    reordered: Annotated[Path, typer.Argument(metavar="R", help="Reordered graph.", show_default=False)],
    out: Out,
    scores: Annotated[Path | None, flag(_SCORES, metavar="S")] = None,
) -> None:
    """Cut the feature rows into tiers, hottest first, and write the files each tier is loaded from.

    With --adjacency-cache, the GPU's memory is shared with the hottest adjacency lists.
    """
    from tiering import pipeline

    options = call.collect(LayoutSettings)
    call.run_stage(pipeline.estimate_layout, pipeline.layout, reordered, out, scores=scores, **options)
