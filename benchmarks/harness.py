"""Paired timings: ours and each peer in turn, several times, so that a drifting machine hits all alike.

The host of a virtual machine takes back memory that was freed some seconds ago, and giving it again costs ten times
what a page fault does: whoever runs after a long peer would pay for it. So before each turn, of either side, as much
memory as the work takes is touched and freed.

The figure to quote is the median of the ratios of turns that follow each other, with its spread; single absolute times
are not. Beside the clock on the wall stands the time of the processors (user and system), which a busy machine
disturbs less.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.errors import InternalError
from tiering.units import parse_bytes, parse_threads

Ids: TypeAlias = "npt.NDArray[np.int32] | npt.NDArray[np.int64]"
Csc: TypeAlias = "tuple[npt.NDArray[np.int64], Ids]"
FloatArray: TypeAlias = "npt.NDArray[np.float64]"
Work: TypeAlias = Callable[[], Any]
"""Does the work of a turn; may return `Spent` where it knows better than who called it what that took."""
Sides: TypeAlias = "Mapping[str, Work | str]"
"""Name of a peer to its work, or to the reason why it cannot run."""

TOUCHED_PER_EDGE = 16
"""Bytes of memory that are touched before each turn; none of our kernels takes more beside its result."""


@dataclass(frozen=True)
class Spent:
    """What a turn took."""

    wall: float
    """Seconds by the clock."""
    cpu: float
    """Seconds of processors, user and system."""
    result: Any = None
    """What the work returned."""


@dataclass
class Side:
    """One side of a comparison."""

    name: str
    """What ran, with its version."""
    seconds: list[float] = field(default_factory=list)
    """Wall seconds of each turn; empty if it could not run."""
    cpu_seconds: list[float] = field(default_factory=list)
    """Processor seconds of each turn."""
    note: str = ""
    """Why it did not run."""
    target: float | None = None
    """Least ratio that is aimed at, if there is one."""

    def add(self, spent: Spent) -> None:
        """Another turn."""
        self.seconds.append(spent.wall)
        self.cpu_seconds.append(spent.cpu)


@dataclass
class Comparison:
    """Timings of one benchmark, ours beside its peers, from one run."""

    name: str
    parameters: dict[str, Any]
    """Sizes, threads, repeats."""
    ours: Side
    peers: list[Side]
    amount: float
    """Work done per turn, in `unit`."""
    unit: str
    """``edges``, ``B``, ``reads``..."""

    def to_json(self) -> dict[str, Any]:
        """JSON form: medians; ratios with minimum and maximum, above 1 where ours is faster."""
        peers = []
        for peer in self.peers:
            entry: dict[str, Any] = {
                "name": peer.name,
                "note": peer.note,
                "seconds": peer.seconds,
                "cpu_seconds": peer.cpu_seconds,
            }
            if peer.seconds:
                entry |= _ratios("ratio", self.ours.seconds, peer.seconds)
                if all([*self.ours.cpu_seconds, *peer.cpu_seconds]):
                    entry |= _ratios("cpu_ratio", self.ours.cpu_seconds, peer.cpu_seconds)
                entry["rate"] = self.amount / median(peer.seconds)
            if peer.target is not None:
                entry["target"] = peer.target
            peers.append(entry)
        return {
            "name": self.name,
            "parameters": self.parameters,
            "unit": self.unit,
            "amount": self.amount,
            "seconds": self.ours.seconds,
            "cpu_seconds": self.ours.cpu_seconds,
            "median_seconds": median(self.ours.seconds),
            "rate": self.amount / median(self.ours.seconds),
            "peers": peers,
        }


def _ratios(name: str, ours: list[float], theirs: list[float]) -> dict[str, Any]:
    """A peer's seconds over ours, turn by turn: median, minimum, maximum."""
    ratios = [right / left for left, right in zip(ours, theirs, strict=True)]
    return {name: median(ratios), f"{name}_min": min(ratios), f"{name}_max": max(ratios)}


def _option(default: Any, text: str, flag: str = "", kind: Callable[[str], Any] | None = None) -> Any:
    """A field that is an option of the command line, too, where it has a `flag`."""
    return field(default=default, metadata={"flag": flag, "help": text, "type": kind or type(default)})


def _number_or_auto(text: str) -> int | str:
    return int(text) if text.isdigit() else text


@dataclass(frozen=True)
class Sizes:
    """Sizes, threads and peers of a run; the defaults are those the documentation quotes."""

    scale: int = _option(22, "R-MAT graphs have 2**SCALE nodes", "--scale")
    edges: int = _option(50_331_648, "edges of the R-MAT graph, duplicates included", "--edges")
    repeats: int = _option(5, "timed turns of each side", "--repeats")
    threads: int = _option(2, "our threads; peers that can be told get as many", "--threads", parse_threads)
    scramble: bool = _option(False, "ids of the R-MAT graph tell nothing about degrees (else: low, high)", "--scramble")
    seed: int = _option(1, "seed of the graph")
    image_bytes: int = _option(4 << 30, "file of random reads; tables that a GPU gathers from", "--size", parse_bytes)
    seconds: float = _option(3.0, "length of a turn of random reads; turns on a GPU are no longer", "--seconds")
    folder: Path = _option(Path(), "directory on the disk to measure", "--dir", Path)
    stage_nodes: int = _option(0, "stages: nodes of the graph; 0: 2**SCALE", "--nodes")
    memory: str = _option("auto", "stages: memory they are given; the kernel holds them to a tenth more", "--memory")
    feature_bytes: int = _option(1 << 30, "stage layout: size of the feature table", "--features", parse_bytes)
    row_bytes: int = _option(2048, "stage layout, epochs on a GPU: bytes of a row", "--row-bytes")
    slow_peers: bool = _option(True, "without peers of tens of seconds a turn", "--no-slow-peers")
    dgl_python: Path | None = _option(
        None, "interpreter of an environment with DGL; default: this", "--dgl-python", Path
    )
    graphbolt_python: Path | None = _option(
        None, "interpreter of an environment with GraphBolt", "--graphbolt-python", Path
    )
    gpu_sms: int | str = _option(
        "auto", "GPU: multiprocessors for gathers from host memory; 0: all; auto: a tenth", "--sms", _number_or_auto
    )
    gpu_times_out: Path | None = _option(
        None, "gpu-times: write them for layout --access-costs", "--gpu-times-out", Path
    )

    @classmethod
    def options(cls, parser: argparse.ArgumentParser) -> None:
        """Add the options to a command line."""
        for each in fields(cls):
            how: dict[str, Any] = {"type": each.metadata["type"]}
            if isinstance(each.default, bool):
                how = {"action": "store_false" if each.default else "store_true"}
            if flag := each.metadata["flag"]:
                parser.add_argument(flag, dest=each.name, default=each.default, help=each.metadata["help"], **how)

    @classmethod
    def given(cls, options: argparse.Namespace) -> Sizes:
        """What the command line says."""
        return cls(**{each.name: getattr(options, each.name) for each in fields(cls) if each.metadata["flag"]})

    @property
    def nodes(self) -> int:
        """Number of nodes of the R-MAT graph."""
        return 1 << self.scale

    @property
    def graph_nodes(self) -> int:
        """Nodes of the graph that stages run on."""
        return self.stage_nodes or self.nodes

    def edge_list(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Sources and destinations."""
        return native.rmat_edges(self.scale, self.edges, self.seed, self.threads, self.scramble)

    def csc(self) -> Csc:
        """The graph as CSC: ``(indptr, indices)``."""
        src, dst = self.edge_list()
        indptr, indices, _ = native.coo_to_csc(src, dst, self.nodes, self.nodes, self.threads)
        return indptr, indices

    def compare(self, name: str, ours: Work, peers: Sides, amount: float, **more: Any) -> Comparison:
        """`compare` on the R-MAT graph; `amount` is in edges, `more` parameters are reported beside the graph's."""
        about = {name: getattr(self, name) for name in ("scale", "nodes", "edges", "threads", "scramble")}
        return compare(
            name, ours, peers, amount=amount, unit="edges", repeats=self.repeats, parameters={**about, **more},
            memory=TOUCHED_PER_EDGE * self.edges,
        )  # fmt: skip


def compare(
    name: str,
    ours: Work,
    peers: Sides,
    *,
    amount: float,
    unit: str,
    repeats: int = 5,
    parameters: Mapping[str, Any] | None = None,
    targets: Mapping[str, float] | None = None,
    memory: int = 0,
    warm_up: bool = True,
) -> Comparison:
    """Run ours and the peers in turn.

    Parameters
    ----------
    amount, unit
        Work per turn, for rates.
    targets
        By peer: least ratio that is aimed at.
    memory
        Bytes that the work takes, to be touched before each turn.
    warm_up
        Run ours once before.
    """
    if warm_up:
        ours()
    side = Side("tiering")
    sides = [
        Side(label, note=peer if isinstance(peer, str) else "", target=(targets or {}).get(label))
        for label, peer in peers.items()
    ]
    for _ in range(repeats):
        side.add(take_turn(ours, memory))
        for other in sides:
            work = peers[other.name]
            if not isinstance(work, str):
                other.add(take_turn(work, memory))
    return Comparison(name, {**(parameters or {}), "repeats": repeats}, side, sides, amount, unit)


def take_turn(work: Work, memory: int = 0) -> Spent:
    """One call, after `memory` bytes were touched and freed; children that ended in it count."""
    touch_memory(memory)
    cpu, wall = cpu_seconds(), time.perf_counter()
    result = work()
    if isinstance(result, Spent):
        return result
    return Spent(time.perf_counter() - wall, cpu_seconds() - cpu, result)


def cpu_seconds() -> float:
    """User and system time of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def touch_memory(nbytes: int) -> None:
    """Take memory, write to it, and free it again."""
    if nbytes:
        parts = np.array_split(np.empty(nbytes, np.uint8), os.cpu_count() or 1)
        with ThreadPoolExecutor(len(parts)) as pool:
            list(pool.map(lambda part: part.fill(0), parts))


def expect(benchmark: str, same: bool, what: str) -> None:
    """Refuse to time what does not compute the same.

    Raises
    ------
    InternalError
        If `same` is false; `what` says what differs.
    """
    if not same:
        raise InternalError(f"benchmark {benchmark}: our result and the peer's differ in their {what}")
