"""Memory of a GPU that training needs in addition to a layout's rows and lists.

It is checked before training, or measured in the first steps (GNNLab: caches get what training leaves; Yang et al.,
EuroSys'22).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tiering.artifacts.manifest import Relation
from tiering.errors import BudgetError
from tiering.formats.adjacency_prefix import ListBytes
from tiering.formats.layout import Layout
from tiering.loader.gpu.device import Device
from tiering.loader.process import warn_once
from tiering.units import format_bytes

STEPS = 8
"""Steps that are measured: the first allocates the optimiser's state, the largest batch of several the peak."""
MARGIN = 1 / 32
"""Fraction of a GPU's memory that stays free: batches differ, and torch's allocator leaves gaps."""
WORTH_SAYING = 1 / 16
"""Fraction of a GPU's memory by which advised and present caches differ before a warning says so."""


@dataclass(frozen=True)
class GpuMemory:
    """Use of a GPU's memory in bytes, as its driver reports it."""

    total: int
    """All memory of the GPU."""
    caches: int
    """Feature rows and adjacency lists that the layout puts there, of ``tiering layout --gpu``."""
    free: int
    """Memory that nobody has taken, at the step with the least."""
    steps: int
    """Steps of training that had ended."""
    most: int
    """All feature rows and adjacency lists: larger caches are of no use."""

    @property
    def training(self) -> int:
        """Everything else: model, gradients, torch's allocator, sampler, peer tier, other processes."""
        return self.total - self.caches - self.free

    @property
    def advised(self) -> int:
        """Size of caches for ``tiering layout --gpu``: what training leaves less `MARGIN`, up to `most`."""
        return max(0, min(self.most, self.caches + self.free - int(MARGIN * self.total)))

    def as_dict(self) -> dict[str, int]:
        """Return all figures, JSON types only."""
        return {**vars(self), "training": self.training, "advised": self.advised}

    def line(self) -> str:
        """Return one line for people."""
        return (
            f"memory of the GPU: {format_bytes(self.training)} training and others, {format_bytes(self.caches)} "
            f"caches, {format_bytes(self.free)} free at least; caches of {_mebibytes(self.advised)} would fit"
        )


def cache_bytes(layout: Layout, types: Iterable[str], relations: Iterable[Relation]) -> int:
    """Return the bytes of the gpu tier of tables, nodes' and edges', and of relations' adjacency lists on a GPU."""
    rows = sum(layout.type_layout(t).rows("gpu") * layout.type_layout(t).row_bytes for t in types)
    return rows + sum(layout.adjacency_prefix(relation).bytes for relation in relations)


class GpuHeadroom:
    """The memory that training needs on the GPU of a loader.

    `asked`: bytes that must be left to training when the loader is made; ``auto``: the first `STEPS` steps are
    measured, and a warning says if the layout should have a larger or a smaller gpu tier. `caches`: bytes that the
    layout puts on the GPU; `most`: bytes that it could.
    """

    def __init__(self, device: Device, where: str, asked: int | str, caches: int, most: int) -> None:
        self._device, self._where, self._caches, self._most = device, where, caches, most
        self.seen: GpuMemory | None = None
        """Memory in the steps so far; ``None`` before the first ended."""
        if isinstance(asked, int):
            self._require(asked)

    def step_ended(self) -> None:
        """Measure a step, when the next batch is asked for: torch's allocator keeps what the step took."""
        steps = 1 if self.seen is None else self.seen.steps + 1
        if steps > STEPS:
            return
        free = self._device.free_bytes() if self.seen is None else min(self._device.free_bytes(), self.seen.free)
        self.seen = GpuMemory(self._device.total_bytes(), self._caches, free, steps, self._most)
        if steps == STEPS:
            self._advise(self.seen)

    def _require(self, asked: int) -> None:
        """Raise `BudgetError` unless `asked` bytes are free or held by torch."""
        left = self._device.free_bytes() + self._device.torch_bytes()
        if left >= asked:
            return
        lower = max(0, self._caches - (asked - left))
        advice = (
            f"make the layout with --gpu {_mebibytes(lower)} or less" if lower >> 20 else "make it without a gpu tier"
        )
        raise BudgetError(
            f"{self._where}: reserve: {format_bytes(asked)} of {self._device.name} are to be left to training; "
            f"{format_bytes(left)} are, next to {format_bytes(self._caches)} of rows and lists; {advice}, reserve "
            "less, or end other programs on this GPU"
        )

    def _advise(self, seen: GpuMemory) -> None:
        """Warn once if the caches should be larger or smaller."""
        differ = seen.advised - seen.caches
        if abs(differ) < WORTH_SAYING * seen.total and seen.free >= MARGIN * seen.total / 2:
            return
        what = "more rows and lists fit" if differ > 0 else "larger batches may not fit"
        warn_once(
            f"{self._where}: after {seen.steps} steps {format_bytes(seen.free)} of {self._device.name} are free, and "
            f"{what}: make the layout with --gpu {_mebibytes(seen.advised)} (it has {format_bytes(seen.caches)} there)"
        )


def make_headroom(device: Device, layout: Layout, asked: Any, types: Iterable[str]) -> GpuHeadroom:
    """Make the headroom of a loader that has opened tables (node types, keys of relations) of `layout` on `device`."""
    relations, types = layout.graph.relations, list(types)
    most = sum(layout.type_layout(t).num_nodes * layout.type_layout(t).row_bytes for t in types)
    for relation in relations:
        size = ListBytes.of_graph(layout.graph, relation, layout.adjacency_prefix(relation).weights)
        most += int(size.prefix_bytes(layout.graph.num_nodes(relation[2]), layout.graph.num_edges(relation)))
    return GpuHeadroom(device, str(layout.path), asked, cache_bytes(layout, types, relations), most)


def _mebibytes(nbytes: int) -> str:
    """Return a size as options take it, rounded down."""
    return f"{nbytes >> 20}MiB"
