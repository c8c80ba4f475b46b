"""Paired timings: ours and each peer in turn, several times, so that a drifting machine hits both alike.

The host of a virtual machine takes back memory that was freed some seconds ago, and giving it again costs ten times
what a page fault does: whoever runs after a long peer would pay for it. So before each timing, of either side, as much
memory as the work takes is touched and freed.

The figure to quote is the median of the pairwise ratios, with its spread; single absolute times are not.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np


@dataclass
class Peer:
    """One peer's side of a comparison."""

    name: str
    """What ran, with its version."""
    seconds: list[float] = field(default_factory=list)
    """Seconds of each repeat; empty if it could not run."""
    note: str = ""
    """Why it did not run, or what differs in what it computes."""
    target: float | None = None
    """Least ratio that is aimed at, if there is one."""


@dataclass
class Comparison:
    """Timings of one benchmark, ours beside its peers, from one process."""

    name: str
    """Name of the benchmark."""
    parameters: dict[str, Any]
    """Sizes, threads, repeats."""
    seconds: list[float]
    """Our seconds per repeat."""
    peers: list[Peer]
    """Each peer's seconds."""
    amount: float
    """Work done per repeat, in `unit`."""
    unit: str
    """Unit of `amount`: ``edges``, ``B``, ``rows``."""

    def ratios(self, peer: Peer) -> list[float]:
        """Peer's seconds over ours, pair by pair: above 1, ours is faster."""
        return [theirs / ours for ours, theirs in zip(self.seconds, peer.seconds, strict=True)]

    def to_json(self) -> dict[str, Any]:
        """JSON form: medians, ratios with minimum and maximum."""
        peers = []
        for peer in self.peers:
            entry: dict[str, Any] = {"name": peer.name, "note": peer.note, "seconds": peer.seconds}
            if peer.seconds:
                ratios = self.ratios(peer)
                entry |= {"ratio": median(ratios), "ratio_min": min(ratios), "ratio_max": max(ratios)}
                entry["rate"] = self.amount / median(peer.seconds)
            if peer.target is not None:
                entry["target"] = peer.target
            peers.append(entry)
        return {
            "name": self.name,
            "parameters": self.parameters,
            "unit": self.unit,
            "amount": self.amount,
            "seconds": self.seconds,
            "median_seconds": median(self.seconds),
            "rate": self.amount / median(self.seconds),
            "peers": peers,
        }


def compare(
    name: str,
    ours: Callable[[], object],
    peers: Mapping[str, Callable[[], object] | str],
    *,
    amount: float,
    unit: str,
    repeats: int = 5,
    parameters: dict[str, Any] | None = None,
    memory: int = 0,
) -> Comparison:
    """Run ours and the peers in turn, `repeats` times after one warm-up of ours.

    Parameters
    ----------
    name
        Name of the benchmark.
    ours
        Does the work once.
    peers
        Name to a function that does the same work once, or to the reason why it cannot run.
    amount, unit
        Work per run, for rates.
    memory
        Bytes that the work takes, to be touched before each run.
    """
    ours()
    seconds: list[float] = []
    sides = [Peer(label, note=peer if isinstance(peer, str) else "") for label, peer in peers.items()]
    for _ in range(repeats):
        seconds.append(time_once(ours, memory))
        for side in sides:
            peer = peers[side.name]
            if not isinstance(peer, str):
                side.seconds.append(time_once(peer, memory))
    return Comparison(name, {**(parameters or {}), "repeats": repeats}, seconds, sides, amount, unit)


def time_once(work: Callable[[], object], memory: int = 0) -> float:
    """Wall seconds of one call, after `memory` bytes were touched and freed."""
    touch_memory(memory)
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def touch_memory(nbytes: int) -> None:
    """Take memory, write to it, and free it again."""
    parts = np.array_split(np.empty(nbytes, np.uint8), os.cpu_count() or 1)
    with ThreadPoolExecutor(len(parts)) as pool:
        list(pool.map(lambda part: part.fill(0), parts))
