"""`tiering score`: predict how often each node's features will be read."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from . import options as opts
from .describe import print_artifact, print_forecast
from .options import option

METHODS = "auto|random|degree|rpr|wrpr|presample|vip|hybrid"
_HELP = (
    "degree: out-degree. rpr: reverse PageRank. wrpr: reverse PageRank weighted to the training nodes. "
    "presample: count some sampled epochs. vip: expected reads from fanouts and degrees. "
    "hybrid: presample corrected by vip. random: by chance, a baseline. "
    "auto: hybrid if --fanouts is given, else wrpr if there are training nodes, else rpr."
)
_OWN = (
    "Scores of your own in the place of a method: a .npy file of one finite number of 0 or more per node, in original "
    "ids; TYPE=FILE, repeated, where several types have features."
)
_rank = partial(option, panel="Reverse PageRank: rpr, wrpr", default=True)
_count = partial(option, panel="Counted epochs: presample, hybrid")


def score_command(
    context: typer.Context,
    graph: opts.GraphArgument,
    out: opts.OutOption,
    method: Annotated[str, option(_HELP, "--method", metavar=METHODS, default=True)] = "auto",
    from_: Annotated[list[str] | None, option(_OWN, "--from", metavar="[TYPE=]FILE")] = None,
    train: opts.TrainOption = None,
    fanouts: opts.OptionalFanouts = None,
    batch_size: opts.BatchSizeOption = 1024,
    frontier: opts.FrontierOption = "all",
    sampler: opts.SamplerOption = "uniform",
    num_walks: opts.NumWalksOption = None,
    walk_length: opts.WalkLengthOption = None,
    restart: opts.RestartOption = None,
    metapaths: opts.MetapathsOption = None,
    epochs: Annotated[int, _count("Epochs to sample.", metavar="K", default=True)] = 2,
    first_epoch: Annotated[
        int, _count("Number of the first; with the seed of a run, that run's own.", metavar="N", default=True)
    ] = 0,
    prior_weight: Annotated[
        float | None, _count("hybrid: epochs that the prior counts for. Default: found from the counts.", metavar="A")
    ] = None,
    damping: Annotated[float, _rank("Share of a score that is handed on.", metavar="D")] = 0.85,
    sweeps: Annotated[int, _rank("Passes of wrpr over the edges.", metavar="N")] = 5,
    teleport: Annotated[str, _rank("Who gets the rest: all or training nodes.", metavar="uniform|train")] = "uniform",
    tolerance: Annotated[float, _rank("rpr stops when the change falls below it.", metavar="T")] = 1e-9,
    seed: opts.SeedOption = 0,
    executor: opts.ExecutorOption = None,
    store: opts.StoreOption = None,
    address: opts.AddressOption = None,
    workers: opts.WorkersOption = None,
    task_memory: opts.TaskMemoryOption = None,
    shards: opts.ShardsOption = None,
    resources: opts.ResourcesOption = None,
    threads: opts.ThreadsOption = "auto",
    memory: opts.MemoryOption = "auto",
    force: opts.ForceOption = False,
    no_verify: opts.NoVerifyOption = False,
    dry_run: opts.DryRunOption = False,
    json: opts.JsonOption = False,
) -> None:
    """Predict how often training will read each node's features, and where fanouts are given, its adjacency."""
    from tiering import pipeline
    from tiering.scores.request import OPTIONS

    # Only what stands on the command line: an option that does not matter to the method is noted, a default is not.
    given = {name: context.params[name] for name in ("seed", *OPTIONS) if _stands(context, name)}
    if "metapaths" in given:
        given["metapaths"] = opts.parse_metapaths(metapaths)
    asked = {"method": method, "scores": from_, "train": train, "threads": threads, "memory": memory, **given}
    cluster = opts.cluster_options(executor, store, address, workers, task_memory, shards, resources)
    if dry_run:
        print_forecast(pipeline.predict_score(graph, out, cluster=cluster, **asked), json)
    else:
        print_artifact(
            pipeline.score_graph(graph, out, force=force, verify=not no_verify, cluster=cluster, **asked), json
        )


def _stands(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name in ("COMMANDLINE", "ENVIRONMENT")
