"""`tiering layout`: cut the feature rows into tiers and write what each memory will hold."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import options as opts
from .describe import print_artifact, print_forecast
from .options import option


def layout_command(
    reordered: Annotated[Path, typer.Argument(metavar="R", help="Reordered graph.", show_default=False)],
    out: opts.OutOption,
    gpu: Annotated[str | None, option("Rows every GPU holds: 8GiB, 3%.", metavar="SIZE")] = None,
    peer: Annotated[str | None, option("Rows spread over P GPUs, SIZE on each: 4x8GiB.", metavar="PxSIZE")] = None,
    cpu: Annotated[
        str | None,
        option("Rows in host memory: 64GiB, 20%. [default: all that is left if no --ssd]", metavar="SIZE"),
    ] = None,
    ssd: Annotated[list[Path] | None, option("Holds an SSD image; once for each SSD.", metavar="DIR")] = None,
    page: Annotated[str, option("Unit of SSD reads, a power of two.", metavar="SIZE", default=True)] = "4KiB",
    adjacency_cache: Annotated[
        str | None,
        option(
            "What the hottest adjacency lists get of --gpu: a share such as 30%, or auto: what saves most time. "
            "[default: none]",
            metavar="none|auto|SHARE",
        ),
    ] = None,
    scores: Annotated[
        Path | None, option("For --adjacency-cache and edge features: the scores that R was ordered by.", metavar="S")
    ] = None,
    access_costs: Annotated[
        Path | None,
        option(
            "For --adjacency-cache: measured costs of accesses, JSON. [default: assumed ones, PCIe 4.0]",
            metavar="FILE",
        ),
    ] = None,
    fit: Annotated[
        str | None,
        option(
            "For --adjacency-cache: measure those costs now on this machine's GPU, by sampling and gathering on R "
            "(auto) or on another reordered graph.",
            metavar="auto|GRAPH",
        ),
    ] = None,
    edge_features: Annotated[
        str,
        option(
            "Whether features of edges lie in the tiers, beside those of nodes: auto, where R has some.",
            metavar="auto|none",
            default=True,
        ),
    ] = "auto",
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
    """Cut the feature rows into tiers, hottest first, and write the files each tier is loaded from.

    With --adjacency-cache, the GPU's memory is shared with the hottest adjacency lists.
    """
    from tiering import pipeline
    from tiering.layout import LayoutOptions

    options = LayoutOptions.of(gpu, peer, cpu, ssd or [], page, adjacency_cache, access_costs, fit, edge_features)
    cluster = opts.cluster_options(executor, store, address, workers, task_memory, shards, resources)
    if dry_run:
        forecast = pipeline.predict_layout(
            reordered, out, options, scores=scores, threads=threads, memory=memory, cluster=cluster
        )
        print_forecast(forecast, json)
        return
    layout = pipeline.layout(
        reordered, out, options, scores=scores, threads=threads, memory=memory, force=force, verify=not no_verify,
        cluster=cluster,
    )  # fmt: skip
    print_artifact(layout, json)
