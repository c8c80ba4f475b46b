"""Options that several commands share, defined once: name, help, type."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tiering.errors import InputError
from tiering.units import parse_threads

if TYPE_CHECKING:
    from tiering.cluster.session import ClusterOptions

GRAPHS, TIERS, INSPECT = "Get a graph", "Prepare tiers", "Look and measure"
"""Groups of commands in `tiering --help`."""
COMMON, SAMPLING, CLUSTER = "Common options", "How training samples", "Many workers, the same bytes"
"""Groups of options in the help of a command."""


def option(text: str, *names: str, panel: str | None = None, default: bool = False, **more: Any) -> Any:
    """An option with its help, in a group of options; the default is shown on request."""
    return typer.Option(*names, help=text, rich_help_panel=panel, show_default=default, **more)


def _common(text: str, *names: str, **more: Any) -> Any:
    return option(text, *names, panel=COMMON, **more)


def _sampling(text: str, *names: str, **more: Any) -> Any:
    return option(text, *names, panel=SAMPLING, **more)


OutOption = Annotated[Path, option("Artifact to write.", "--out", "-o", metavar="DIR")]
ForceOption = Annotated[bool, _common("Replace an existing output, if tiering wrote all that it holds.", "--force")]
JsonOption = Annotated[bool, _common("Print one JSON document instead of text.", "--json")]
ThreadsOption = Annotated[
    str,
    _common("Threads; the result is the same.", "--threads", metavar="N|auto", default=True, callback=parse_threads),
]
"""A number when the command begins."""
MEMORY_HELP = "Memory to stay within, such as 8GiB or 50%; page cache is free."
MemoryOption = Annotated[str, _common(MEMORY_HELP, "--memory", metavar="SIZE|auto", default=True)]
DryRunOption = Annotated[bool, _common("Say what it would take (time, memory, disk), and do nothing.", "--dry-run")]
NoVerifyOption = Annotated[bool, _common("Do not compare what is read with its checksums.", "--no-verify")]
SeedOption = Annotated[int, option("Seed of everything random.", "--seed", min=0, default=True)]
TrainOption = Annotated[
    str | None,
    option(
        "Training nodes: a split of the graph, a .npy file of ids (TYPE=FILE where there are several types), or a "
        "share such as 1%. Default: the graph's own train split.",
        "--train",
        metavar="SPLIT|FILE|SHARE",
    ),
]
_FANOUTS = (
    "Neighbours per hop, the seeds' own hop first; -1 is all. Per relation: 'cites=10,writes=5;cites=5,writes=0', hops "
    "separated by semicolons, 0 skips."
)
FanoutsListOption = Annotated[
    list[str] | None, option(f"{_FANOUTS} Repeatable. Default: 10,10,10.", "--fanouts", metavar="N,N,..")
]
OptionalFanouts = Annotated[str | None, _sampling(_FANOUTS, "--fanouts", metavar="N,N,..")]
BatchSizeOption = Annotated[int, _sampling("Training nodes per batch.", "--batch-size", metavar="N", default=True)]
SamplerOption = Annotated[
    str,
    _sampling(
        "Who is drawn. full: --fanouts -1,-1. pinsage: the fanout most visited of random walks. ladies: the fanout is "
        "nodes per layer.",
        "--sampler",
        metavar="uniform|replacement|weighted|full|pinsage|ladies",
        default=True,
    ),
]
FrontierOption = Annotated[
    str,
    _sampling("Who samples at a hop: all nodes so far, or new ones.", "--frontier", metavar="all|new", default=True),
]
NumWalksOption = Annotated[int | None, _sampling("pinsage: walks from each node.", "--num-walks", metavar="N")]
WalkLengthOption = Annotated[int | None, _sampling("pinsage: steps of a walk.", "--walk-length", metavar="N")]
RestartOption = Annotated[float | None, _sampling("pinsage: chance that a walk ends early.", "--restart", metavar="P")]
MetapathsOption = Annotated[
    list[str] | None,
    _sampling(
        "pinsage: relations of a step, in the order walked; repeatable. Default: each relation within a type.",
        "--metapath",
        metavar="REL,REL,..",
    ),
]
"""The four of pinsage: ``None`` is the default of `tiering.sampling.SamplingOptions`."""


def parse_metapaths(given: list[str] | None) -> list[list[str]] | None:
    """Metapaths from ``--metapath writes,rev_writes``: lists of names of relations, in the order walked."""
    return None if not given else [[name.strip() for name in path.split(",")] for path in given]


def given_walks(
    num_walks: int | None, walk_length: int | None, restart: float | None, metapaths: list[str] | None
) -> dict[str, Any]:
    """The options of pinsage that were given, as fields of `tiering.sampling.SamplingOptions`."""
    walks = {"num_walks": num_walks, "walk_length": walk_length, "restart": restart}
    return {
        name: value for name, value in {**walks, "metapaths": parse_metapaths(metapaths)}.items() if value is not None
    }


def _cluster(text: str, *names: str, **more: Any) -> Any:
    return option(text, *names, panel=CLUSTER, **more)


ExecutorOption = Annotated[
    str | None,
    _cluster(
        "Cut the work into tasks, for a Ray cluster, or for threads (local) as --shards or --task-memory say.",
        "--executor",
        metavar="local|ray",
    ),
]
StoreOption = Annotated[
    str | None,
    _cluster(
        "Where tasks leave what they hand on; all machines see it. Default: next to the output.",
        "--store",
        metavar="DIR",
    ),
]
AddressOption = Annotated[
    str | None,
    _cluster("Ray cluster to join. Default: one of this machine alone.", "--address", metavar="auto|HOST:PORT"),
]
WorkersOption = Annotated[
    int | None, _cluster("Tasks side by side on this machine. Default: processors.", "--workers", metavar="N")
]
TaskMemoryOption = Annotated[
    str | None, _cluster("What a task may take, about; decides how many there are.", "--task-memory", metavar="SIZE")
]
ShardsOption = Annotated[int | None, _cluster("Parts of a graph, instead.", "--shards", metavar="N")]
ResourcesOption = Annotated[
    str | None,
    _cluster(
        "What a machine of the Ray cluster needs to take tasks: an amount of a resource for each, or a label.",
        "--resources",
        metavar="NAME=AMOUNT|LABEL=TEXT,..",
    ),
]


def cluster_options(
    executor: str | None,
    store: str | None,
    address: str | None,
    workers: int | None,
    task_memory: str | None,
    shards: int | None,
    resources: str | None,
) -> ClusterOptions | None:
    """What these options ask for; ``None`` where the command is to do the work itself."""
    given = {
        "--store": store, "--address": address, "--workers": workers, "--task-memory": task_memory, "--shards": shards,
        "--resources": resources,
    }  # fmt: skip
    if executor is None:
        if useless := [name for name, value in given.items() if value is not None]:
            raise InputError(f"{useless[0]}: has no effect without --executor; add it, or leave {useless[0]} out")
        return None
    from tiering.cluster.session import ClusterOptions

    return ClusterOptions(
        executor, store, address, workers, task_memory=task_memory, shards=shards, resources=resources,
    )  # fmt: skip


GraphArgument = Annotated[Path, typer.Argument(metavar="G", help="Graph.", show_default=False)]
