"""Divide a GPU's memory between feature rows and adjacency lists (DUCATI's dual cache; Zhang et al., SIGMOD'23).

Either is a prefix: of the line of feature rows, and of the columns of each relation. A prefix is worth the seconds per
epoch that its accesses would cost more from host memory: expected accesses times `AccessTimes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tiering.errors import InputError
from tiering.formats.adjacency_prefix import AdjacencyPrefix
from tiering.placement.access_times import AccessTimes
from tiering.placement.beyond import Beyond
from tiering.placement.lines import CHUNK, POINTS, ListPath, Lists, feature_line, list_path, prefix_sums
from tiering.placement.tiers import Table, longest_prefix
from tiering.units import Size, format_bytes, format_small_seconds, parse_size

HOST = Beyond()
"""Host memory serves all that the GPU does not hold."""
POINT_BYTES, CHUNK_VALUES = 108, 12
"""Memory of a plan: bytes per block of rows or columns, 8-byte values per row or column of a chunk."""


@dataclass(frozen=True)
class Side:
    """What features, or adjacency lists, are read per epoch, and what the GPU serves of it."""

    reads: float
    """Expected accesses per epoch, of feature rows or of lists."""
    served: float
    """Those of them that the GPU's own memory serves."""
    seconds: float
    """Seconds per epoch that all would save if the GPU held everything."""
    saved: float
    """Seconds per epoch that those served save."""

    @property
    def share(self) -> float:
        """Share of the reads that is served; 0 where there are none."""
        return self.served / self.reads if self.reads else 0.0

    def to_json(self) -> dict[str, float]:
        """Form in the manifest."""
        return vars(self).copy()


@dataclass(frozen=True)
class Split:
    """How a GPU's memory is divided."""

    mode: str
    """``auto``, or the share that was asked for."""
    budget: int
    """Bytes that were divided."""
    rows: dict[str, int]
    """Feature rows on the GPU, by node type; hottest first."""
    feature_bytes: int
    """What they take."""
    lists: dict[str, AdjacencyPrefix]
    """Adjacency lists on the GPU, by relation; only relations with any."""
    features: Side
    """Reads of feature rows."""
    adjacency: Side
    """Reads of adjacency lists."""

    @property
    def adjacency_bytes(self) -> int:
        """What the adjacency lists take."""
        return sum(prefix.bytes for prefix in self.lists.values())

    @property
    def saved(self) -> float:
        """Seconds saved per epoch, of features and lists together: what ``auto`` maximises."""
        return self.features.saved + self.adjacency.saved

    @property
    def gpu(self) -> Size | None:
        """Size of the gpu tier of feature rows; ``None`` if it holds none."""
        return Size(format_bytes(self.feature_bytes), bytes=self.feature_bytes) if self.feature_bytes else None

    def to_body(self) -> dict[str, Any]:
        """Fields of a layout's body."""
        return {
            "adjacency": {key: prefix.to_json() for key, prefix in self.lists.items()},
            "split": {
                "mode": self.mode,
                "budget_bytes": self.budget,
                "adjacency_bytes": self.adjacency_bytes,
                "feature_bytes": self.feature_bytes,
                "predicted": {"adjacency": self.adjacency.to_json(), "features": self.features.to_json()},
            },
        }

    def __str__(self) -> str:
        whole = self.features.seconds + self.adjacency.seconds
        return (
            f"split {self.mode}: of {format_bytes(self.budget)}, adjacency lists take "
            f"{format_bytes(self.adjacency_bytes)} and serve {100 * self.adjacency.share:.1f} % of the list reads, "
            f"feature rows take {format_bytes(self.feature_bytes)} and serve {100 * self.features.share:.1f} % of the "
            f"feature reads; saved per epoch: {format_small_seconds(self.saved)} of {format_small_seconds(whole)}"
        )


def parse_split(text: str | int | None) -> Size | None:
    """Parse ``none`` (also ``None``: no split), ``auto``, or a share such as ``30%``.

    Raises
    ------
    InputError
        If it is none of these.
    """
    expected = "split: expected none, auto, or the share of --gpu that adjacency lists get, such as 30%"
    if text is None or str(text).strip().lower() == "none":
        return None
    try:
        size = parse_size(text, "split")
    except InputError:
        raise InputError(f"{expected}; found {text!r}") from None
    if size.bytes is not None:
        raise InputError(f"{expected}; found {text!r}")
    return size


def gpu_budget(gpu: Size | None, tables: Sequence[Table], lists: Sequence[Lists]) -> int:
    """Bytes that are to be divided.

    Parameters
    ----------
    gpu
        As given: bytes, a share of all feature bytes (as without a split), or ``auto``: everything.

    Raises
    ------
    InputError
        If there are none, or more than all features and lists take.
    """
    if gpu is None:
        raise InputError("split: expected memory to split; give --gpu SIZE such as 8GiB, or leave --split out")
    features = sum(table.rows * table.row_bytes for table in tables)
    everything = features + sum(each.bytes for each in lists)
    budget = everything if gpu.auto else gpu.of(features)
    if not budget:
        raise InputError(
            f"gpu: {gpu.text} of {format_bytes(features)} feature data is nothing to split; give a size such as 1GiB"
        )
    if budget > everything:
        raise InputError(
            f"gpu: {gpu.text} is larger than all feature data and adjacency lists ({format_bytes(everything)}); "
            "use `--gpu auto` to place everything there"
        )
    return budget


def plan_split(
    asked: Size,
    budget: int,
    tables: Sequence[Table],
    lists: Sequence[Lists],
    times: AccessTimes,
    beyond: Beyond = HOST,
) -> Split:
    """Divide `budget` bytes between feature rows and adjacency lists.

    Parameters
    ----------
    asked
        From `parse_split`. A share: lists along `tiering.placement.lines.list_path` as long as they fit into it, rows
        of features in all that is left. ``auto``: the point of that path at which lists and rows together save most
        seconds per epoch; of equal ones the one with fewest lists.
    tables
        Feature rows, as for `tiering.placement.plan_tiers`; accesses per epoch as scores.
    lists
        Adjacency lists of each relation.
    beyond
        The tiers behind the gpu tier; they follow its end.

    Notes
    -----
    How good ``auto`` is, by its own figures. With one relation every column is tried, and no other pair of prefixes
    saves more. With several relations every block along the path is tried: the result saves no less than any share of
    the budget, and no less than the best combination of prefixes less what one piece of one relation's hull saves (at
    a corner of the hull no combination of as many bytes saves more). With more than `POINTS` columns, or rows, whole
    blocks of columns / `POINTS` are tried, and rows count by whole blocks.

    Lists that the GPU does not hold count as read from host memory. A peer's memory counts as reached.

    Cost: one look at each score, each list's length and reads; sorts of blocks. Memory: `split_memory`.
    """
    path = list_path(lists, times)
    if asked.fraction is not None:
        point = int(np.searchsorted(path.bytes, int(budget * asked.fraction), side="right")) - 1
    else:
        reach = int(np.searchsorted(path.bytes, budget, side="right"))
        rest = feature_line(tables, times, beyond).saved(budget - path.bytes[:reach], beyond, times)
        point = int(np.argmax(path.seconds[:reach] + rest))
    left = budget - int(path.bytes[point])
    ends = longest_prefix(tables, left)
    return Split(
        asked.text,
        budget,
        {table.node_type: end for table, end in zip(tables, ends, strict=True)},
        sum(end * table.row_bytes for table, end in zip(tables, ends, strict=True)),
        _prefixes(path, point, lists),
        _feature_side(tables, left, times, beyond),
        Side(*(float(sums[at]) for sums in (path.reads, path.seconds) for at in (-1, point))),
    )


def split_memory(rows: int, columns: int) -> int:
    """Bytes that planning a split takes at the most, for numbers of feature rows and lists over all types."""
    points = min(rows, POINTS) + min(columns, POINTS)
    return POINT_BYTES * points + 8 * CHUNK_VALUES * min(max(rows, columns), CHUNK) + (1 << 20)


def _prefixes(path: ListPath, point: int, lists: Sequence[Lists]) -> dict[str, AdjacencyPrefix]:
    found = {}
    for each, columns in zip(lists, path.columns(point, len(lists)), strict=True):
        if columns:
            found[each.relation] = AdjacencyPrefix.of(columns, int(each.indptr[columns]), each.size)
    return found


def _feature_side(tables: Sequence[Table], gpu_bytes: int, times: AccessTimes, beyond: Beyond) -> Side:
    """By exact prefixes. What is saved is counted from a layout without a gpu tier."""
    sizes = {size + more for size in (0, gpu_bytes) for more in beyond.ends}
    reach = {size: longest_prefix(tables, size) for size in sizes}
    reads = served = seconds = saved = 0.0
    for index, table in enumerate(tables):
        ends = sorted({table.rows, *(found[index] for found in reach.values())})
        accesses = dict(zip(ends, prefix_sums(table.scores, ends), strict=True))
        each, on_ssd = times.feature(table.row_bytes), beyond.ssd_seconds(table.row_bytes, times)
        worth = []
        for size in (0, gpu_bytes):
            gpu, peer, cpu = (accesses[reach[size + more][index]] for more in beyond.ends)
            worth.append(times.saved_by_tiers(each * gpu, each * peer, on_ssd * cpu))
        everything = accesses[table.rows]
        reads, served = reads + everything, served + accesses[reach[gpu_bytes][index]]
        seconds += (each + on_ssd) * everything - worth[0]
        saved += worth[1] - worth[0]
    return Side(reads, served, seconds, saved)
