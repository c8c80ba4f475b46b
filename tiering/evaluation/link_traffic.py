"""Bytes per epoch over each link, if a score had filled tiers of given sizes.

Rows of the gpu tier come from the GPU's own memory. Row r of the peer tier lies on GPU r mod P, and batches are spread
evenly over the P GPUs, so one read in P of that tier is local too and the others cross the peer link. Rows of the cpu
tier cross the host link; so do those of the ssd tier, which the host reads. Bytes over links are those of the rows.

SSDs deliver more: a read moves blocks, not rows, and rows of a batch may share a page. The rule is the loader's
(`ext/src/io/read_plan.cpp`): per batch and node type, every page that holds a row of the batch is read once, from the
block of the first byte needed to the block of the last. One thing is left out: the loader cuts reads of more than
64 KiB, and such a cut may fall into a page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.errors import InputError
from tiering.evaluation.bootstrap import Bootstrap, bound_draws
from tiering.evaluation.cache_order import FloatArray, IntArray, Ranges, Rows
from tiering.formats.layout import SECTOR_BYTES, TIERS, SsdRows
from tiering.layout.tiers import parse_page
from tiering.units import format_bytes, parse_bytes

LINKS = ("gpu_memory", "peer_link", "host_link", "ssd")
"""Names of the links, fastest first."""
Intervals = dict[str, tuple[float, float]]
"""Per link: 95 % interval of its fraction of all bytes."""


@dataclass(frozen=True)
class SsdUnits:
    """Sizes in which SSDs are read."""

    page_bytes: int = 4096
    """Page of the layout."""
    block_bytes: int = SECTOR_BYTES
    """Alignment of direct reads: 512 on most drives and file systems."""

    @classmethod
    def parse(cls, page: str | int, block: str | int) -> SsdUnits:
        """Check the sizes that the user typed: powers of two, the block no larger than the page."""
        units = cls(parse_page(page), parse_bytes(block, "block"))
        size = units.block_bytes
        if not 1 <= size <= units.page_bytes or size & (size - 1):
            most = format_bytes(units.page_bytes)
            raise InputError(f"block: expected a power of two up to the page ({most}), such as 512, found {block!r}")
        return units


@dataclass(frozen=True)
class SsdReads:
    """Bytes read for some rows, and the pages they lie in."""

    bytes: int
    pages: int


def read_spans(begins: IntArray, ends: IntArray, units: SsdUnits) -> SsdReads:
    """Return the reads of rows, given by their first byte and the byte behind the last: ascending, no row twice."""
    block, page = units.block_bytes, units.page_bytes
    first, last = begins // block * block, -(-ends // block) * block
    pages = (ends - 1) // page - begins // page + 1
    together = begins[1:] // page == (ends[:-1] - 1) // page
    # Between two rows of a page lies a gap, which is read too, or they share a block: then it is negative.
    between = (first[1:] - last[:-1])[together]
    return SsdReads(int((last - first).sum() + between.sum()), int(pages.sum() - np.count_nonzero(together)))


class SsdCounter:
    """A counter of the reads that the ssd tiers of some scores need, batch by batch.

    `positions`: of each score and type, position of each row in the ssd tier, as `CacheOrder` has it.
    """

    def __init__(self, rows: Rows, positions: Mapping[str, Sequence[IntArray]], units: SsdUnits) -> None:
        self._rows, self._positions, self._units = rows, positions, units
        sizes = zip(rows.counts, rows.row_bytes, strict=True)
        self._geometry = [SsdRows.plan(0, count, size, units.page_bytes) for count, size in sizes]

    def count(self, nodes: Mapping[str, npt.NDArray[np.int64]]) -> IntArray:
        """Return bytes and pages read for the unique nodes of a batch: int64, shape (scores, types, 2)."""
        sums = np.zeros((len(self._positions), len(self._rows.types), 2), np.int64)
        for of_score, by_type in zip(sums, self._positions.values(), strict=True):
            for index, node_type in enumerate(self._rows.types):
                positions = by_type[index][nodes[node_type]]
                begins = self._geometry[index].begins(np.sort(positions[positions >= 0]), self._units.page_bytes)
                reads = read_spans(begins, begins + self._rows.row_bytes[index], self._units)
                of_score[index] = reads.bytes, reads.pages
        return sums

    def name_sums(self, sums: IntArray) -> dict[str, dict[str, SsdReads]]:
        """Return sums of what `count` returned, by score and node type."""
        return {
            name: {t: SsdReads(*pair.tolist()) for t, pair in zip(self._rows.types, of_score, strict=True)}
            for name, of_score in zip(self._positions, sums, strict=True)
        }


@dataclass(frozen=True)
class LinkTraffic:
    """Tiers that one score fills, and what training reads through them."""

    row_bytes: dict[str, int]
    """Per node type."""
    ranges: Ranges
    """Node type and tier -> half-open range of ranks."""
    reads: dict[str, dict[str, int]]
    """Node type and tier -> rows read, over all epochs."""
    num_peers: int
    """GPUs that share the peer tier."""
    epochs: int
    intervals: Intervals | None
    ssd_reads: dict[str, SsdReads] | None
    """Per node type: reads of the SSDs, over all epochs; ``None`` without ssd tier or known row sizes."""

    def moved(self, node_type: str | None = None) -> dict[str, float]:
        """Return the bytes per epoch over each link, of one type or all."""
        types = self._types(node_type)
        tiers = [sum(self.reads[t][tier] * self.row_bytes[t] for t in types) / self.epochs for tier in TIERS]
        return dict(zip(LINKS, (link_weights(self.num_peers) @ np.array(tiers)).tolist(), strict=True))

    def shares(self, node_type: str | None = None) -> dict[str, float]:
        """Return the fraction of all bytes moved (of the type) over each link; 0 where nothing was read."""
        moved = self.moved(node_type)
        total = sum(moved.values()) or 1.0
        return {link: nbytes / total for link, nbytes in moved.items()}

    def device(self, node_type: str | None = None) -> dict[str, float] | None:
        """Return the ``bytes`` and ``pages`` per epoch read from the SSDs for the rows of one type or all."""
        if self.ssd_reads is None:
            return None
        reads = [self.ssd_reads[t] for t in self._types(node_type)]
        return {unit: sum(getattr(read, unit) for read in reads) / self.epochs for unit in ("bytes", "pages")}

    def rows(self, tier: str, node_type: str | None = None) -> int:
        """Return the rows in a tier, of one type or all."""
        return sum(end - begin for begin, end in (self.ranges[t][tier] for t in self._types(node_type)))

    def _types(self, node_type: str | None) -> list[str]:
        return list(self.ranges) if node_type is None else [node_type]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form; see `tiering.evaluation.result.Evaluation.to_json`."""
        return {**self._type_json(None), "types": {t: self._type_json(t) for t in self.ranges}}

    def _type_json(self, node_type: str | None) -> dict[str, Any]:
        moved, shares, device = self.moved(node_type), self.shares(node_type), self.device(node_type) or {}
        links: dict[str, Any] = {link: {"bytes_per_epoch": moved[link], "share": shares[link]} for link in LINKS}
        links["ssd"] |= {f"{unit}_read_per_epoch": device.get(unit) for unit in ("bytes", "pages")}
        if node_type is None:
            for link in LINKS:
                links[link]["interval"] = None if self.intervals is None else list(self.intervals[link])
        types = self._types(node_type)
        tiers = {
            tier: {
                "rows": self.rows(tier, node_type),
                "bytes": sum(self.rows(tier, t) * self.row_bytes[t] for t in types),
                "reads_per_epoch": sum(self.reads[t][tier] for t in types) / self.epochs,
            }
            for tier in TIERS
        }
        return {"links": links, "tiers": tiers}


def link_weights(num_peers: int) -> FloatArray:
    """Return the fraction of each tier's reads over each link: float64, shape (links, tiers), columns sum to 1."""
    local = 1 / num_peers if num_peers else 0.0
    return np.array([[1, local, 0, 0], [0, 1 - local, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]], np.float64)


def bound_fractions(rows: Rows, hits: Sequence[IntArray], bootstrap: Bootstrap, num_peers: int) -> Intervals | None:
    """Return the interval of each link's fraction of all bytes.

    `hits`: rows of each tier that each group of batches read, int64 of shape (groups, tiers) for each type.
    """
    per_tier = np.asarray(sum(size * of_type for size, of_type in zip(rows.row_bytes, hits, strict=True)))
    fractions = bootstrap.ratios(per_tier, per_tier.sum(axis=1))
    if fractions is None:
        return None
    ends = bound_draws(fractions @ link_weights(num_peers).T)
    return {link: (low, high) for link, (low, high) in zip(LINKS, ends.tolist(), strict=True)}
