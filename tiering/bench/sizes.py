"""How large the benchmarks are, and the R-MAT graph that most of them run on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.bench.harness import Comparison, compare

Ids: TypeAlias = "npt.NDArray[np.int32] | npt.NDArray[np.int64]"
Csc: TypeAlias = "tuple[npt.NDArray[np.int64], Ids]"
Work: TypeAlias = Callable[[], Any]

TOUCHED_PER_EDGE = 16
"""Bytes of memory that are touched before each timing; none of our kernels takes more beside its result."""


@dataclass(frozen=True)
class Sizes:
    """Sizes, threads and peers of a run; the defaults are those the documentation quotes."""

    scale: int = 22
    """R-MAT graphs have 2**scale nodes."""
    edges: int = 50_331_648
    """Edges of the R-MAT graph, duplicates included."""
    repeats: int = 5
    """Timed turns of each side."""
    threads: int = 2
    """Our threads; peers that can be told get as many."""
    scramble: bool = False
    """Whether ids tell nothing about degrees (otherwise low ids have high degrees, as R-MAT draws them)."""
    seed: int = 1
    """Seed of the graph."""
    image_bytes: int = 4 * 1024**3
    """Size of the file that random reads go to, and of the tables that a GPU gathers from."""
    seconds: float = 3.0
    """Length of a turn of random reads."""
    folder: Path = Path()
    """Directory on the device whose reads are measured."""
    stage_nodes: int = 0
    """Nodes of the graph that stages run on; 0: 2**scale."""
    memory: str = "auto"
    """Memory that stages are given; where it is a size, the kernel holds them to a tenth more."""
    feature_bytes: int = 1024**3
    """Size of the feature table of the stage layout."""
    row_bytes: int = 2048
    """Bytes of a feature row."""
    slow_peers: bool = True
    """Run peers that take tens of seconds a turn, too."""
    graphbolt_python: Path | None = None
    """Python interpreter of an environment that has GraphBolt."""
    gpu_sms: int | str = "auto"
    """Multiprocessors that a gather from host memory may use; 0: all; ``auto``: a tenth."""
    gpu_times_out: Path | None = None
    """Where ``gpu-times`` writes what it measured."""

    @property
    def stage_repeats(self) -> int:
        """Turns of a stage: fewer, because they are long."""
        return min(3, self.repeats)

    @property
    def nodes(self) -> int:
        """Number of nodes of the R-MAT graph."""
        return 1 << self.scale

    def parameters(self) -> dict[str, Any]:
        """What the report says about the graph."""
        return {
            "scale": self.scale,
            "nodes": self.nodes,
            "edges": self.edges,
            "threads": self.threads,
            "scramble": self.scramble,
        }

    def edge_list(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Sources and destinations."""
        return native.rmat_edges(self.scale, self.edges, self.seed, self.threads, self.scramble)

    def csc(self) -> Csc:
        """The graph as CSC: ``(indptr, indices)``."""
        src, dst = self.edge_list()
        indptr, indices, _ = native.coo_to_csc(src, dst, self.nodes, self.nodes, self.threads)
        return indptr, indices

    def compare(self, name: str, ours: Work, peers: Mapping[str, Work | str], amount: float, **more: Any) -> Comparison:
        """Time both sides; `amount` is in edges, `more` parameters are reported beside the graph's."""
        parameters = {**self.parameters(), **more}
        return compare(
            name, ours, peers, amount=amount, unit="edges", repeats=self.repeats, parameters=parameters,
            memory=TOUCHED_PER_EDGE * self.edges,
        )  # fmt: skip
