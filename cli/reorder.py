"""`tiering reorder`: renumber the nodes, hottest first."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from . import options as opts
from .describe import print_artifact, print_forecast
from .options import option

_FIRST = (
    "Nodes that come before all others whatever their score, so that the fastest tiers hold them: a .npy file of "
    "original ids, in the order wanted; TYPE=FILE, repeated, for several types."
)


def reorder_command(
    graph: opts.GraphArgument,
    scores: Annotated[Path, option("Scores of this graph.", "--scores", metavar="S")],
    out: opts.OutOption,
    first: Annotated[list[str] | None, option(_FIRST, "--first", metavar="[TYPE=]FILE")] = None,
    features: Annotated[
        bool, option("Write a reordered feature table too; a layout does not need it.", "--features")
    ] = False,
    executor: opts.ExecutorOption = None,
    store: opts.StoreOption = None,
    address: opts.AddressOption = None,
    workers: opts.WorkersOption = None,
    task_memory: opts.TaskMemoryOption = None,
    shards: opts.ShardsOption = None,
    resources: opts.ResourcesOption = None,
    memory: opts.MemoryOption = "auto",
    threads: opts.ThreadsOption = "auto",
    force: opts.ForceOption = False,
    no_verify: opts.NoVerifyOption = False,
    dry_run: opts.DryRunOption = False,
    json: opts.JsonOption = False,
) -> None:
    """Renumber the nodes by score, hottest first: adjacency, labels, splits, edge data, and the way back."""
    from tiering import pipeline

    cluster = opts.cluster_options(executor, store, address, workers, task_memory, shards, resources)
    if dry_run:
        forecast = pipeline.predict_reorder(
            graph, scores, out, first=first, features=features, threads=threads, memory=memory, cluster=cluster
        )
        print_forecast(forecast, json)
        return
    reordered = pipeline.reorder_graph(
        graph, scores, out, first=first, features=features, memory=memory, threads=threads, force=force,
        verify=not no_verify, cluster=cluster,
    )  # fmt: skip
    print_artifact(reordered, json)
