"""`tiering reorder`: renumber the nodes, hottest first."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from .options import STAGE, Call, GraphArgument, Out, flag, takes

_FIRST = (
    "Nodes that come before all others whatever their score, so that the fastest tiers hold them: a .npy file of "
    "original ids, in the order wanted; TYPE=FILE, repeated, for several types."
)


@takes(*STAGE)
def reorder_command(
    call: Call,
    graph: GraphArgument,
    scores: Annotated[Path, flag("Scores of this graph.", "--scores", metavar="S")],
    out: Out,
    first: Annotated[list[str] | None, flag(_FIRST, "--first", metavar="[TYPE=]FILE")] = None,
    features: Annotated[
        bool, flag("Write a reordered feature table too; a layout does not need it.", "--features")
    ] = False,
) -> None:
    """Renumber the nodes by score, hottest first: adjacency, labels, splits, edge data, and the way back."""
    from tiering import pipeline

    asked = {"first": first, "features": features}
    call.run_stage(pipeline.estimate_reorder, pipeline.reorder_graph, graph, scores, out, **asked)
