"""What the processes of the peer tests run: each is one rank with a simulated GPU of its own."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch.distributed as dist
import warm_processes
from simulated_gpu import install
from torch.distributed import FileStore

from tiering.errors import TieringError
from tiering.loader import PeerGroup, open_layout


def start(program: Callable[..., Any], *arguments: Any, environment: dict[str, str] | None = None) -> Rank:
    """Run ``program(connection, simulator, *arguments)`` in a process of its own."""
    return Rank(*warm_processes.start(_run, program, arguments, environment or {}))


class Rank:
    """A process, and the line to it."""

    def __init__(self, process: Any, line: Any) -> None:
        self.process, self.line = process, line

    def receive(self, timeout: float = 120) -> Any:
        """The next thing it says; its error, if that is what came."""
        if not self.line.poll(timeout):
            self.process.kill()
            raise TimeoutError("the process says nothing")
        said = self.line.recv()
        if isinstance(said, dict) and "failed" in said:
            raise AssertionError(said["failed"])
        return said

    def end(self) -> int:
        """Exit code, once it has ended."""
        self.process.join(60)
        self.line.close()
        return int(self.process.exitcode)


def _run(line: Any, program: Callable[..., Any], arguments: tuple[Any, ...], environment: dict[str, str]) -> None:
    os.environ.update(environment)
    sys.stdout = sys.stderr
    try:
        program(line, install(pytest.MonkeyPatch()), *arguments)
    except BaseException:
        line.send({"failed": traceback.format_exc()})
        raise


def meet(folder: str, rank: int, size: int, timeout: float = 20) -> Any:
    """A group that meets in a file of `folder`."""
    return PeerGroup(rank, size, FileStore(f"{folder}/store", size), timeout=timeout)


def gather(line: Any, simulator: Any, layout_path: str, folder: str, rank: int, size: int, peers: str) -> None:
    """Gather rows of all tiers, say where they were and what is left afterwards.

    `peers`: ``store`` (a group by hand), ``default group``, ``process group`` (of gloo).
    """
    if "group" in peers:
        dist.init_process_group("gloo", init_method=f"file://{folder}/gloo", rank=rank, world_size=size)
    group = {
        "store": lambda: meet(folder, rank, size),
        "process group": lambda: dist.new_group(list(range(size)), backend="gloo"),
        "default group": lambda: "auto",
    }[peers]()
    layout = open_layout(layout_path)
    features = layout.features(device=f"cuda:{rank}", peers=group)
    ids = np.random.default_rng(rank).integers(0, len(features), 500)
    rows = features.gather(ids).numpy().copy()
    places = features.placement()["peer"]["where"]
    features.close()
    layout.close()
    live = {kind: simulator.live(kind) for kind in ("allocations", "ipc", "registered")}
    line.send({"ids": ids, "rows": rows, "places": places, "live": live})


def outlive(line: Any, simulator: Any, layout_path: str, folder: str, rank: int) -> None:
    """Rank 1 waits to be killed; rank 0 gathers before and after, and says what it was told."""
    features = open_layout(layout_path).features(device="cuda", peers=meet(folder, rank, 2))
    ids = np.arange(len(features))
    if rank == 0:
        features.gather(ids)
    line.send("ready")
    line.recv()
    try:
        features.gather(ids)
        line.send("gathered")
    except TieringError as error:
        line.send(f"{type(error).__name__}: {error}")
    os._exit(0)  # the memory of the other is gone
