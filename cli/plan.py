"""`tiering plan`: what an epoch would read from SSD with other memory, disks and stored dtypes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from tiering.evaluation.options import PlanOptions
from tiering.sampling.options import SamplingOptions

from .evaluate import parse_row_bytes, refuse_plot
from .options import Call, Common, GraphArgument, Group, Seed, SeedTime, Train, flag, takes
from .output import note, print_result


@takes(Group(PlanOptions), Group(SamplingOptions), Group(Common, ("threads", "memory", "no_verify", "json")))
def plan_command(
    call: Call,
    graph: GraphArgument,
    scores: Annotated[
        Path | None, flag("Scores to order the rows by. Default: the graph's order, or out-degree.", metavar="S")
    ] = None,
    train: Train = None,
    seed_time: SeedTime = None,
    row_bytes: Annotated[
        str | None, flag("Bytes of a row of types without features, as of evaluate.", metavar="SIZE|TYPE=SIZE,..")
    ] = None,
    seed: Seed = 0,
    plot: Annotated[Path | None, flag("Draw seconds by memory.", "--plot", metavar="FILE.png")] = None,
) -> None:
    """Predict seconds of I/O, bytes and hit rate of an epoch, for sizes of memory, disks and stored dtypes."""
    from tiering.pipeline import plan_epochs

    refuse_plot(plot, [graph, *([] if scores is None else [scores])])
    asked: dict[str, Any] = {**call.collect(PlanOptions), **call.collect(SamplingOptions), "train": train, "seed": seed}
    asked |= {"seed_time": seed_time, "threads": call.threads, "memory": call.memory, "verify": not call.no_verify}
    if row_bytes is not None:
        asked["row_bytes"] = parse_row_bytes(row_bytes)
    found = plan_epochs(graph, scores, **asked)
    print_result(call.json, {**found.to_json(), "plot": plot and str(plot)}, *found.describe())
    if plot is not None:
        note(f"plot: {found.plot(plot)}")
