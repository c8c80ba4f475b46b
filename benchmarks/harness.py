"""Paired timings: ours and each peer in turn, several times, so that a drifting machine hits all alike.

The host of a virtual machine takes back memory that was freed some seconds ago, and giving it again costs ten times
what a page fault does. So before each turn, of either side, as much memory as the work takes is touched and freed.
The figure to quote is the median of the ratios of turns that follow each other, with its spread. The time of the
processors (user and system) is disturbed less by a busy machine than the clock on the wall.
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

from benchmarks.csc_edges import coo_to_csc
from benchmarks.pages import existing_directory
from benchmarks.rmat import rmat_edges
from tiering.errors import InternalError
from tiering.text.units import parse_bytes, parse_threads

Ids: TypeAlias = "npt.NDArray[np.int32] | npt.NDArray[np.int64]"
Csc: TypeAlias = "tuple[npt.NDArray[np.int64], Ids]"
FloatArray: TypeAlias = "npt.NDArray[np.float64]"
Work: TypeAlias = Callable[[], Any]
"""Does the work of a turn; may return `Spent` where it knows better than who called it what that took."""
Sides: TypeAlias = "Mapping[str, Work | str]"
"""Name of a peer to its work, or to the reason why it cannot run."""

TOUCHED_PER_EDGE = 16
"""Bytes of memory that are touched before each turn; none of our kernels takes more in addition to its result."""
AIMS = {
    "coo-to-csc": {"scipy coo.tocsc": 3.7, "dgl formats('csc')": 1.0},
    "wrpr": {"scipy csr @ x, matrix ready": 2.9},
    "vip": {"scipy csr @ x, matrix ready": 2.7},
    "relabel": {"scipy A[p][:, p]": 15.3, "dgl.reorder_graph": 110.0},
    "sampling": {
        "dgl 1.1.3 NeighborSampler (fused), in one batch": 5.1,
        "dgl 1.1.3 NeighborSampler (fused), batches side by side": 4.8,
    },
}
"""By benchmark and peer: the median ratio on two quiet cores, less 5 %."""


@dataclass(frozen=True)
class Spent:
    """Cost of a turn: seconds by the clock, seconds of processors, and what the work returned."""

    wall: float
    cpu: float
    result: Any = None


@dataclass
class Side:
    """One side of a comparison."""

    name: str
    seconds: list[float] = field(default_factory=list)
    """Cost of each turn; empty if it could not run, and `note` says why."""
    cpu_seconds: list[float] = field(default_factory=list)
    note: str = ""
    target: float | None = None
    """Least ratio that is aimed at, if there is one."""

    def add(self, spent: Spent) -> None:
        """Add another turn."""
        self.seconds.append(spent.wall)
        self.cpu_seconds.append(spent.cpu)


@dataclass
class Comparison:
    """Timings of one benchmark, ours and its peers'; a turn does `amount` of work, in `unit`."""

    name: str
    parameters: dict[str, Any]
    ours: Side
    peers: list[Side]
    amount: float
    unit: str

    def to_json(self) -> dict[str, Any]:
        """Return medians; ratios with minimum and maximum, above 1 where ours is faster."""
        return {
            "name": self.name,
            "parameters": self.parameters,
            "unit": self.unit,
            "amount": self.amount,
            "seconds": self.ours.seconds,
            "cpu_seconds": self.ours.cpu_seconds,
            "median_seconds": median(self.ours.seconds),
            "rate": self.amount / median(self.ours.seconds),
            "peers": [self._peer(peer) for peer in self.peers],
        }

    def _peer(self, peer: Side) -> dict[str, Any]:
        entry = {name: getattr(peer, name) for name in ("name", "note", "seconds", "cpu_seconds")}
        if peer.seconds:
            entry |= _ratios("ratio", self.ours.seconds, peer.seconds)
            if all([*self.ours.cpu_seconds, *peer.cpu_seconds]):
                entry |= _ratios("cpu_ratio", self.ours.cpu_seconds, peer.cpu_seconds)
            entry["rate"] = self.amount / median(peer.seconds)
        return entry if peer.target is None else entry | {"target": peer.target}


@dataclass
class Table:
    """Figures of one benchmark that are no comparison of ours with peers."""

    name: str
    parameters: dict[str, Any]
    heads: list[str]
    rows: list[list[Any]]
    """A value for each head: text, a number, or ``None`` where it is not known."""

    def to_json(self) -> dict[str, Any]:
        """Return the table as JSON holds it."""
        return vars(self).copy()


Result: TypeAlias = "Comparison | Table"


def _ratios(name: str, ours: list[float], theirs: list[float]) -> dict[str, Any]:
    """Return a peer's seconds over ours, turn by turn: median, minimum, maximum."""
    ratios = [right / left for left, right in zip(ours, theirs, strict=True)]
    return {name: median(ratios), f"{name}_min": min(ratios), f"{name}_max": max(ratios)}


def _option(flag: str, default: Any, text: str, kind: Callable[[str], Any] | None = None) -> Any:
    """Return a field that is an option of the command line."""
    return field(default=default, metadata={"flag": flag, "help": text, "type": kind or type(default)})


@dataclass(frozen=True)
class Sizes:
    """Sizes, threads and peers of a run; the defaults are those the documentation quotes."""

    scale: int = _option("--scale", 22, "R-MAT graphs have 2**SCALE nodes")
    edges: int = _option("--edges", 50_331_648, "edges of the R-MAT graph, duplicates included")
    repeats: int = _option("--repeats", 5, "timed turns of each side")
    threads: int = _option("--threads", 2, "our threads; peers that can be told get as many", parse_threads)
    scramble: bool = _option("--scramble", False, "ids of the R-MAT graph tell nothing about degrees (else: low, high)")
    seed: int = _option("--seed", 1, "seed of the graph")
    image_bytes: int = _option("--size", 4 << 30, "file of random reads; tables that a GPU gathers from", parse_bytes)
    seconds: float = _option("--seconds", 3.0, "length of a turn of random reads; turns on a GPU are no longer")
    folder: Path = _option("--dir", Path(), "directory on the disk to measure", existing_directory)
    stage_nodes: int = _option("--nodes", 0, "nodes of the graph; 0: 2**SCALE, quantized: 300,000")
    memory: str = _option("--memory", "auto", "stages: memory they get; the kernel holds them to a tenth more")
    feature_bytes: int = _option("--features", 1 << 30, "stage layout: size of the feature table", parse_bytes)
    row_bytes: int = _option("--row-bytes", 2048, "stage layout, epochs on a GPU: bytes of a row")
    slow_peers: bool = _option("--no-slow-peers", True, "without peers of tens of seconds a turn")
    dgl_python: Path | None = _option("--dgl-python", None, "interpreter with DGL; default: this", Path)
    graphbolt_python: Path | None = _option("--graphbolt-python", None, "interpreter with GraphBolt", Path)
    gpu_sms: str = _option("--sms", "auto", "GPU: multiprocessors for gathers from host memory; 0: all; auto: a tenth")
    sweep_out: Path | None = _option("--sweep-out", None, "gpu-sweep: keep each case there, and go on from it", Path)
    gpu_times_out: Path | None = _option(
        "--gpu-times-out", None, "gpu-times: write them for layout --access-costs", Path
    )

    @classmethod
    def options(cls, parser: argparse.ArgumentParser, *names: str) -> None:
        """Add the options of these names, or all, to a command line."""
        for option in [option for option in fields(cls) if option.name in names or not names]:
            how: dict[str, Any] = {"type": option.metadata["type"]}
            if isinstance(option.default, bool):
                how = {"action": "store_false" if option.default else "store_true"}
            flag, text = option.metadata["flag"], option.metadata["help"]
            parser.add_argument(flag, dest=option.name, default=option.default, help=text, **how)

    @classmethod
    def from_options(cls, options: argparse.Namespace) -> Sizes:
        """Return the sizes that the command line names, defaults for the others."""
        names = {option.name for option in fields(cls)}
        return cls(**{name: value for name, value in vars(options).items() if name in names})

    @property
    def nodes(self) -> int:
        """Nodes of the R-MAT graph."""
        return 1 << self.scale

    @property
    def graph_nodes(self) -> int:
        """Nodes of the graph that stages run on."""
        return self.stage_nodes or self.nodes

    def edge_list(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Return sources and destinations."""
        return rmat_edges(self.scale, self.edges, self.seed, scramble=self.scramble)

    def csc(self) -> Csc:
        """Return the graph as ``(indptr, indices)``."""
        return coo_to_csc(*self.edge_list(), self.nodes, self.nodes, self.threads)[:2]

    def compare(self, name: str, ours: Work, peers: Sides, amount: float, **more: Any) -> Comparison:
        """Compare on the R-MAT graph; `amount` is in edges, `more` is reported in addition to its parameters."""
        about = {name: getattr(self, name) for name in ("scale", "nodes", "edges", "threads", "scramble")}
        return compare(
            name, ours, peers, amount=amount, unit="edges", repeats=self.repeats, parameters={**about, **more},
            targets=AIMS.get(name), memory=TOUCHED_PER_EDGE * self.edges,
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
    """Run ours, once before if it is to warm up, and the peers in turn; `memory` bytes are touched before each turn."""
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
    """Time one call, after `memory` bytes were touched and freed; children that ended in it count."""
    touch_memory(memory)
    cpu, wall = cpu_seconds(), time.perf_counter()
    result = work()
    if isinstance(result, Spent):
        return result
    return Spent(time.perf_counter() - wall, cpu_seconds() - cpu, result)


def cpu_seconds() -> float:
    """Return user and system time of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def touch_memory(nbytes: int) -> None:
    """Take memory, at most half of the machine's, write to it, and free it again."""
    nbytes = min(nbytes, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)
    if nbytes:
        parts = np.array_split(np.empty(nbytes, np.uint8), os.cpu_count() or 1)
        with ThreadPoolExecutor(len(parts)) as pool:
            list(pool.map(lambda part: part.fill(0), parts))


def expect(benchmark: str, same: bool, what: str) -> None:
    """Refuse to time what does not compute the same: raises `InternalError` that says what differs."""
    if not same:
        raise InternalError(f"benchmark {benchmark}: our result and the peer's differ in their {what}")
