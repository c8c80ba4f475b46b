"""What a layout will consist of, and what it takes to write it.

The writer does what is decided here, and a dry run prints it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tiering.artifacts.file_writer import appending_memory
from tiering.errors import InputError
from tiering.formats.feature_rows import CHUNK_BYTES
from tiering.formats.features import FeatureTable
from tiering.formats.graph import Graph
from tiering.formats.layout import SUM_BYTES, SsdRows, TypeLayout, image_bytes, peer_rows
from tiering.formats.order import Order
from tiering.formats.scores import Scores
from tiering.layout.adjacency_cache import divide_gpu
from tiering.layout.cache_split import CacheSplit, split_memory
from tiering.layout.capacities import Capacities, Table, plan_tiers
from tiering.layout.options import LayoutOptions
from tiering.memory import Budget
from tiering.plan import StagePlan, Step, held_memory
from tiering.reorder.rows import minimum_memory, plan_rows
from tiering.units import Size

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LayoutPlan:
    """Tiers of all node types with features."""

    entries: dict[str, TypeLayout]
    """By node type."""
    page_bytes: int
    num_peers: int
    num_images: int
    """SSD images; 0 if no row lies there."""
    split: CacheSplit | None = None
    """How each GPU's memory is shared with adjacency lists; ``None``: it is not."""
    steps: tuple[Step, ...] = ()
    """What deciding took."""
    notes: tuple[str, ...] = ()
    """What there is to say about the decisions."""

    @property
    def pages(self) -> int:
        """Logical pages of the ssd tier."""
        return sum(entry.ssd_rows.num_pages for entry in self.entries.values())

    def to_body(self) -> dict[str, Any]:
        """Fields of a layout's body."""
        return {
            "page_bytes": self.page_bytes,
            "num_images": self.num_images,
            "num_peers": self.num_peers,
            "node_types": {name: entry.to_json() for name, entry in self.entries.items()},
            **({} if self.split is None else self.split.to_body()),
        }

    def images(self) -> list[int]:
        """Bytes of each SSD image."""
        return [image_bytes(self.pages, k, self.num_images, self.page_bytes) for k in range(self.num_images)]

    def places(self, out: Path, folders: Sequence[Path]) -> dict[Path, int]:
        """Bytes that will be written, by directory: the memory tiers in `out`, the images."""
        places = {out: sum(_memory_tier_bytes(entry) for entry in self.entries.values()) + self.pages * SUM_BYTES}
        for folder, nbytes in zip(folders, self.images(), strict=False):
            places[folder] = places.get(folder, 0) + nbytes
        return places

    def writing_memory(self) -> int:
        """Memory of the files written at the same time: one of a memory tier or those of the peers, the images."""
        tiers = [
            sum(appending_memory(peer_rows(entry.rows(tier), part, parts) * entry.row_bytes) for part in range(parts))
            for entry in self.entries.values()
            for tier, parts in (("gpu", 1), ("peer", self.num_peers), ("cpu", 1))
        ]
        images = self.images()
        sums = [nbytes // self.page_bytes * SUM_BYTES for nbytes in images]
        return max(tiers, default=0) + sum(map(appending_memory, [*images, *sums]))

    def stage(
        self, tables: Mapping[str, FeatureTable], out: Path, folders: Sequence[Path], budget: Budget, copied: int
    ) -> StagePlan:
        """What writing it takes: memory and disk, type by type.

        Parameters
        ----------
        copied
            Bytes of the graph where it cannot be hard-linked into the layout.

        Raises
        ------
        BudgetError
            Where the layout would.

        Notes
        -----
        Memory: that of the rows (`tiering.reorder.rows.plan_rows`) and of the files being written (four pieces of 8 MiB
        each: those of one memory tier, or of all peers, and all images).
        """
        left = budget.without(self.writing_memory())
        rows = [self._row_step(entry, tables[name], left) for name, entry in self.entries.items()]
        graph = Step("graph", "copied" if copied else "hard links", 0, copied, copied)
        places = self.places(out, folders)
        places[out] += copied
        return StagePlan("layout", out, (*self.steps, *rows, graph), places, held_memory(budget), self.notes)

    def _row_step(self, entry: TypeLayout, table: FeatureTable, left: Budget) -> Step:
        """The rows of a type: read in rank order, copied into pieces, hashed, written in the background."""
        rows = plan_rows(table, table.row_order == "rank", left)
        copies = 0 if rows.windows else self._copies(entry)
        return Step(
            f"rows of {entry.node_type}",
            rows.how,
            rows.memory + self.writing_memory() + copies,
            rows.disk_read(table),
            _memory_tier_bytes(entry) + entry.ssd_rows.num_pages * (self.page_bytes + SUM_BYTES),
            rows.bytes_scratch,
            table.rows,
            "row",
        )

    def _copies(self, entry: TypeLayout) -> int:
        """Bytes that are copied of a chunk before they are written: rows of one peer, pages, pages of one image."""
        chunk = min(CHUNK_BYTES, entry.num_nodes * entry.row_bytes)
        peers = chunk // self.num_peers if self.num_peers > 1 and entry.rows("peer") else 0
        rows = min(chunk // entry.row_bytes, entry.rows("ssd"))
        if not rows:
            return peers
        place = entry.ssd_rows
        whole = place.stride == entry.row_bytes and self.page_bytes % place.stride == 0
        padded = rows * place.stride if not place.rows_per_page else -(-rows // place.rows_per_page) * self.page_bytes
        images = padded // self.num_images if self.num_images > 1 else 0
        return max(peers, (0 if whole else padded) + images)


def _memory_tier_bytes(entry: TypeLayout) -> int:
    """Bytes of a type's rows in the memory tiers."""
    return sum(entry.rows(tier) for tier in ("gpu", "peer", "cpu")) * entry.row_bytes


def plan_layout(
    graph: Graph,
    tables: Mapping[str, FeatureTable],
    options: LayoutOptions,
    scores: Scores | None,
    budget: Budget,
) -> LayoutPlan:
    """Plan a layout of a reordered graph.

    Parameters
    ----------
    scores
        Those that the graph was ordered by, where GPUs hold adjacency lists too.

    Raises
    ------
    InputError, BudgetError
        As `tiering.layout.adjacency_cache.divide_gpu` and `tiering.layout.capacities.plan_tiers`.
    """
    order, capacities = order_of(graph), options.capacities
    rows = [Table(name, table.rows, table.row_bytes, order.score(name)) for name, table in tables.items()]
    if options.cache is None and scores is None:
        return _place_rows(graph.path, rows, tables, capacities, options)
    split = divide_gpu(graph, order, rows, options, scores, budget.expecting(_expected_memory(tables, options)))
    plan = _place_rows(graph.path, rows, tables, replace(capacities, gpu=split.gpu), options)
    lists = sum(graph.num_nodes(relation[2]) for relation in graph.relations)
    need = split_memory(sum(table.rows for table in rows), lists)
    step = Step("adjacency cache", "done now", need, amount=lists, unit="list")
    return replace(plan, split=split, steps=(step,), notes=(str(split),))


def order_of(graph: Graph) -> Order:
    """The order of a reordered graph; others are refused."""
    if graph.order is None:
        raise InputError(
            f"{graph.path}: expected a reordered graph; run `tiering reorder {graph.path} --scores S --out R` first"
        )
    return graph.order


def plan_future_layout(where: Path, tables: Mapping[str, FeatureTable], options: LayoutOptions) -> LayoutPlan:
    """Plan a layout of a graph that does not exist yet: all scores count as equal.

    So rows get all of the GPU's memory, as far as other tiers keep some.
    """
    capacities, notes = options.capacities, []
    if options.cache is not None and capacities.gpu is not None:
        total = sum(table.rows * table.row_bytes for table in tables.values())
        nbytes = min(total, capacities.gpu.of(total))
        kept = nbytes >= max((table.row_bytes for table in tables.values()), default=1) and not (
            capacities.ssd and nbytes == total
        )
        capacities = replace(capacities, gpu=Size(capacities.gpu.text, bytes=nbytes) if kept else None)
        notes.append("adjacency cache: what it gets of the GPU's memory depends on scores; counted as none")
    if len(tables) > 1:
        notes.append("rows of several types: how they share the tiers depends on scores")
    rows = [Table(name, each.rows, each.row_bytes, np.broadcast_to(0.0, each.rows)) for name, each in tables.items()]
    return replace(_place_rows(where, rows, tables, capacities, options), notes=tuple(notes))


def _expected_memory(tables: Mapping[str, FeatureTable], options: LayoutOptions) -> int:
    """Memory that will do for the rows, however they are divided."""
    minimum = max((minimum_memory(table, table.row_order == "rank") for table in tables.values()), default=0)
    files = max(1, options.capacities.num_peers) + len(options.folders)
    return minimum + files * appending_memory(sum(table.bytes for table in tables.values()))


def _place_rows(
    where: Path,
    rows: Sequence[Table],
    tables: Mapping[str, FeatureTable],
    capacities: Capacities,
    options: LayoutOptions,
) -> LayoutPlan:
    """Ranges and SSD pages of every node type with features, as `plan_tiers` decides.

    Parameters
    ----------
    where
        The graph, for messages.
    capacities
        Those of feature rows: the gpu tier has what adjacency lists leave.
    """
    if not tables:
        if capacities.gpu or capacities.peer or capacities.ssd:
            _log.warning(
                "%s: the graph has no features; tier sizes are ignored, the layout holds adjacency alone", where
            )
        return LayoutPlan({}, options.page_bytes, capacities.num_peers, 0)
    ranges = plan_tiers(rows, capacities)
    entries, next_page = {}, 0
    for name, table in tables.items():
        begin, end = ranges[name]["ssd"]
        ssd_rows = SsdRows.plan(next_page, end - begin, table.row_bytes, options.page_bytes)
        next_page += ssd_rows.num_pages
        entries[name] = TypeLayout(name, table.rows, table.dim, table.dtype, ranges[name], ssd_rows)
    return LayoutPlan(entries, options.page_bytes, capacities.num_peers, len(options.folders) if next_page else 0)
