"""Options that several commands share, defined once: name, help, type."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

GRAPHS, TIERS, INSPECT = "Get a graph", "Prepare tiers", "Look and measure"
"""Groups of commands in `tiering --help`."""
COMMON = "Common options"

OutOption = Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Artifact to write.", show_default=False)]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Replace an existing output.", rich_help_panel=COMMON, show_default=False)
]
JsonOption = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON document instead of text.", rich_help_panel=COMMON, show_default=False),
]
ThreadsOption = Annotated[
    str,
    typer.Option("--threads", metavar="N|auto", help="Threads; the result is the same.", rich_help_panel=COMMON),
]
MemoryOption = Annotated[
    str,
    typer.Option(
        "--memory",
        metavar="SIZE|auto",
        help="Memory to stay within, such as 8GiB or 50%; page cache is free.",
        rich_help_panel=COMMON,
    ),
]
DryRunOption = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Say what it would take (time, memory, disk), and do nothing.",
        rich_help_panel=COMMON,
        show_default=False,
    ),
]
NoVerifyOption = Annotated[
    bool,
    typer.Option(
        "--no-verify",
        help="Do not compare what is read with its checksums.",
        rich_help_panel=COMMON,
        show_default=False,
    ),
]
SeedOption = Annotated[int, typer.Option("--seed", help="Seed of everything random.", min=0)]
TrainOption = Annotated[
    str | None,
    typer.Option(
        "--train",
        metavar="SPLIT|FILE|SHARE",
        help="Training nodes: a split of the graph, a .npy file of ids (TYPE=FILE where there are several types), or a "
        "share such as 1%. "
        "Default: the graph's own train split.",
        show_default=False,
    ),
]
_FANOUTS = (
    "Neighbours per hop, the seeds' own hop first; -1 is all. Per relation: 'cites=10,writes=5;cites=5,writes=0', hops "
    "separated by semicolons, 0 skips."
)
FanoutsListOption = Annotated[
    list[str] | None,
    typer.Option("--fanouts", metavar="N,N,..", help=f"{_FANOUTS} Repeatable. Default: 10,10,10.", show_default=False),
]
_SAMPLING = "How training samples"


def _sampling(*names: str, metavar: str, text: str, default: bool = True) -> Any:
    return typer.Option(*names, metavar=metavar, help=text, rich_help_panel=_SAMPLING, show_default=default)


OptionalFanouts = Annotated[str | None, _sampling("--fanouts", metavar="N,N,..", text=_FANOUTS, default=False)]
BatchSizeOption = Annotated[int, _sampling("--batch-size", metavar="N", text="Training nodes per batch.")]
SamplerOption = Annotated[
    str,
    _sampling(
        "--sampler",
        metavar="uniform|replacement|weighted|full|pinsage|ladies",
        text="Who is drawn. full: --fanouts -1,-1. pinsage: the fanout most visited of random walks. "
        "ladies: the fanout is nodes per layer.",
    ),
]
FrontierOption = Annotated[
    str, _sampling("--frontier", metavar="all|new", text="Who samples at a hop: all nodes so far, or new ones.")
]
NumWalksOption = Annotated[
    int | None, _sampling("--num-walks", metavar="N", text="pinsage: walks from each node.", default=False)
]
WalkLengthOption = Annotated[
    int | None, _sampling("--walk-length", metavar="N", text="pinsage: steps of a walk.", default=False)
]
RestartOption = Annotated[
    float | None, _sampling("--restart", metavar="P", text="pinsage: chance that a walk ends early.", default=False)
]
MetapathsOption = Annotated[
    list[str] | None,
    _sampling(
        "--metapath",
        metavar="REL,REL,..",
        text="pinsage: relations of a step, in the order walked; repeatable. Default: each relation within a type.",
        default=False,
    ),
]
"""The four of pinsage: ``None`` is the default of `tiering.sampling.SamplingOptions`."""


def parse_metapaths(given: list[str] | None) -> list[list[str]] | None:
    """Metapaths from ``--metapath writes,rev_writes``: lists of names of relations, in the order walked."""
    return None if not given else [[name.strip() for name in path.split(",")] for path in given]


GraphArgument = Annotated[Path, typer.Argument(metavar="G", help="Graph.", show_default=False)]
