"""What a layout will consist of: ranges of ranks, SSD pages, and the memory that writing them takes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tiering.artifacts.file_writer import appending_memory
from tiering.formats.features import FeatureTable
from tiering.formats.layout import SUM_BYTES, SsdRows, TypeLayout, image_bytes, peer_rows
from tiering.memory import Budget
from tiering.placement import Capacities, Table, plan_tiers
from tiering.ranked_rows import least_memory

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TierPlan:
    """Tiers of all node types with features."""

    entries: dict[str, TypeLayout]
    """By node type."""
    page_bytes: int
    num_peers: int
    num_images: int
    """SSD images; 0 if no row lies there."""

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
        }

    def images(self) -> list[int]:
        """Bytes of each SSD image."""
        return [image_bytes(self.pages, k, self.num_images, self.page_bytes) for k in range(self.num_images)]

    def tier_bytes(self) -> int:
        """Bytes of the files of the memory tiers."""
        return sum(e.rows(tier) * e.row_bytes for e in self.entries.values() for tier in ("gpu", "peer", "cpu"))

    def places(self, out: Path, folders: Sequence[Path]) -> dict[Path, int]:
        """Bytes that will be written, by directory: the memory tiers in `out`, the images."""
        found = {out: self.tier_bytes() + self.pages * SUM_BYTES}
        for folder, nbytes in zip(folders, self.images(), strict=False):
            found[folder] = found.get(folder, 0) + nbytes
        return found

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

    def reading_budget(self, budget: Budget) -> Budget:
        """What is left of a budget for bringing rows into order."""
        return budget.without(self.writing_memory())


def expected_memory(tables: Mapping[str, FeatureTable], capacities: Capacities, num_images: int) -> int:
    """Memory that will do for the rows, however they are divided."""
    least = max((least_memory(table, table.row_order == "rank") for table in tables.values()), default=0)
    files = max(1, capacities.num_peers) + num_images
    return least + files * appending_memory(sum(table.bytes for table in tables.values()))


def plan_layout(
    where: Path,
    scores: Callable[[str], np.ndarray[Any, Any]],
    tables: Mapping[str, FeatureTable],
    capacities: Capacities,
    page_bytes: int,
    num_images: int,
) -> TierPlan:
    """Ranges and SSD pages of every node type with features, as `plan_tiers` decides.

    Parameters
    ----------
    where
        The graph, for messages.
    scores
        Scores of a node type by rank.
    num_images
        SSD directories there are.
    """
    if not tables:
        if capacities.gpu or capacities.peer or capacities.ssd:
            _log.warning(
                "%s: the graph has no features; tier sizes are ignored, the layout holds adjacency alone", where
            )
        return TierPlan({}, page_bytes, capacities.num_peers, 0)
    rows = [Table(name, table.rows, table.row_bytes, scores(name)) for name, table in tables.items()]
    ranges = plan_tiers(rows, capacities)
    entries, next_page = {}, 0
    for name, table in tables.items():
        begin, end = ranges[name]["ssd"]
        ssd_rows = SsdRows.plan(next_page, end - begin, table.row_bytes, page_bytes)
        next_page += ssd_rows.num_pages
        entries[name] = TypeLayout(name, table.rows, table.dim, table.dtype, ranges[name], ssd_rows)
    return TierPlan(entries, page_bytes, capacities.num_peers, num_images if next_page else 0)
