"""What a tier plan would move: bytes per epoch over each link, if a score had filled tiers of given sizes.

Rows of the gpu tier come from the GPU's own memory. Row r of the peer tier lies on GPU r mod P, and batches are spread
evenly over the P GPUs, so one read in P of that tier is local too and the others cross the peer link. Rows of the cpu
tier cross the host link. Rows of the ssd tier are read by the host, and cross the host link as well. Bytes over links
are those of the rows.

What the SSDs deliver for them is more: a read moves blocks, not rows, and rows of a batch may share a page. The rule is
the loader's (`ext/src/io/read_plan.cpp`): per batch and node type, every page that holds a row asked for is read once,
from the block of the first byte needed to the block of the last. It is counted on the batches judged. One thing is left
out: the loader cuts reads of more than 64 KiB, and such a cut may fall into a page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.errors import InputError
from tiering.evaluation.bootstrap import Bootstrap, middle
from tiering.evaluation.line import FloatArray, IntArray, Ranges, Rows
from tiering.formats.layout import SECTOR_BYTES, TIERS, SsdRows
from tiering.layout.tiers import parse_page
from tiering.units import format_bytes, parse_bytes

LINKS = ("gpu_memory", "peer_link", "host_link", "ssd")
"""Names of the links, fastest first."""
Intervals = dict[str, tuple[float, float]]
"""Per link: 95 % interval of its share of all bytes."""


@dataclass(frozen=True)
class SsdUnits:
    """Sizes in which SSDs are read."""

    page_bytes: int = 4096
    """Page of the layout."""
    block_bytes: int = SECTOR_BYTES
    """Where reads may begin and end: the alignment of direct reads, 512 on most drives and file systems."""

    @classmethod
    def parse(cls, page: str | int, block: str | int) -> SsdUnits:
        """From what the user gave; each a power of two, the block no larger than the page."""
        units = cls(parse_page(page), parse_bytes(block, "block"))
        size = units.block_bytes
        if not 1 <= size <= units.page_bytes or size & (size - 1):
            most = format_bytes(units.page_bytes)
            raise InputError(f"block: expected a power of two up to the page ({most}), such as 512, found {block!r}")
        return units


@dataclass(frozen=True)
class SsdReads:
    """Bytes that fetch some rows, and pages read from: each by one command, or neighbouring ones together."""

    bytes: int
    pages: int


def span_reads(begins: IntArray, ends: IntArray, units: SsdUnits) -> SsdReads:
    """Reads that fetch rows, from the first byte of each and the byte behind it: ascending, no row twice."""
    block, page = units.block_bytes, units.page_bytes
    first, last = begins // block * block, -(-ends // block) * block
    pages = (ends - 1) // page - begins // page + 1
    together = begins[1:] // page == (ends[:-1] - 1) // page
    # Between two rows of a page lies a gap, which is read too, or they share a block: then it is negative.
    between = (first[1:] - last[:-1])[together]
    return SsdReads(int((last - first).sum() + between.sum()), int(pages.sum() - np.count_nonzero(together)))


class SsdCounter:
    """Counts, batch by batch, what the ssd tiers of some plans read.

    `types`, `row_bytes`: of each node type; `places`: of each plan, of each type, where a row lies in the ssd tier (-1:
    not there), as `tiering.evaluation.line.Ranking` has it.
    """

    def __init__(
        self, types: Sequence[str], row_bytes: Sequence[int], places: Mapping[str, Sequence[IntArray]], units: SsdUnits
    ) -> None:
        self.types, self.row_bytes, self.places, self.units = types, row_bytes, places, units
        counts = [of_type.size for of_type in next(iter(places.values()))]
        sizes = zip(counts, row_bytes, strict=True)
        self._geometry = [SsdRows.plan(0, count, size, units.page_bytes) for count, size in sizes]

    def see(self, nodes: Mapping[str, npt.NDArray[np.int64]]) -> IntArray:
        """Reads of one batch, from its unique nodes per type: int64, shape (rankings, types, 2), bytes and pages."""
        sums = np.zeros((len(self.places), len(self.types), 2), np.int64)
        for of_score, of_plan in zip(sums, self.places.values(), strict=True):
            for index, node_type in enumerate(self.types):
                places = of_plan[index][nodes[node_type]]
                begins = self._geometry[index].begins(np.sort(places[places >= 0]), self.units.page_bytes)
                reads = span_reads(begins, begins + self.row_bytes[index], self.units)
                of_score[index] = reads.bytes, reads.pages
        return sums

    def reads(self, sums: IntArray) -> dict[str, dict[str, SsdReads]]:
        """Per score and node type, from the sums of what was seen."""
        return {
            name: {t: SsdReads(*pair.tolist()) for t, pair in zip(self.types, of_score, strict=True)}
            for name, of_score in zip(self.places, sums, strict=True)
        }


@dataclass(frozen=True)
class Traffic:
    """One score's plan, and what training would read through it."""

    row_bytes: dict[str, int]
    ranges: Ranges
    """Node type and tier -> half-open range of ranks."""
    reads: dict[str, dict[str, int]]
    """Node type and tier -> rows read, over all epochs."""
    num_peers: int
    """GPUs that share the peer tier."""
    epochs: int
    intervals: Intervals | None
    ssd_reads: dict[str, SsdReads] | None
    """Per node type: what the SSDs delivered, over all epochs; ``None`` without ssd tier or known row sizes."""

    def moved(self, node_type: str | None = None) -> dict[str, float]:
        """Bytes per epoch over each link, of one type or all."""
        types = self._types(node_type)
        tiers = [sum(self.reads[t][tier] * self.row_bytes[t] for t in types) / self.epochs for tier in TIERS]
        return dict(zip(LINKS, (link_weights(self.num_peers) @ np.array(tiers)).tolist(), strict=True))

    def shares(self, node_type: str | None = None) -> dict[str, float]:
        """Share of all bytes moved (of the type) over each link; 0 where nothing was read."""
        moved = self.moved(node_type)
        total = sum(moved.values()) or 1.0
        return {link: nbytes / total for link, nbytes in moved.items()}

    def device(self, node_type: str | None = None) -> dict[str, float] | None:
        """Per epoch ``bytes`` and ``pages`` read from the SSDs for the rows of one type or all."""
        if self.ssd_reads is None:
            return None
        reads = [self.ssd_reads[t] for t in self._types(node_type)]
        return {unit: sum(getattr(read, unit) for read in reads) / self.epochs for unit in ("bytes", "pages")}

    def rows(self, tier: str, node_type: str | None = None) -> int:
        """Rows in a tier, of one type or all."""
        return sum(end - begin for begin, end in (self.ranges[t][tier] for t in self._types(node_type)))

    def _types(self, node_type: str | None) -> list[str]:
        return list(self.ranges) if node_type is None else [node_type]

    def to_json(self) -> dict[str, Any]:
        """JSON form; see `tiering.evaluation.result.Evaluation.to_json`."""
        return {
            "links": self._links(None),
            "tiers": self._tiers(None),
            "types": {t: {"links": self._links(t), "tiers": self._tiers(t)} for t in self.ranges},
        }

    def _links(self, node_type: str | None) -> dict[str, Any]:
        moved, shares, device = self.moved(node_type), self.shares(node_type), self.device(node_type) or {}
        links: dict[str, Any] = {link: {"bytes_per_epoch": moved[link], "share": shares[link]} for link in LINKS}
        links["ssd"] |= {f"{unit}_read_per_epoch": device.get(unit) for unit in ("bytes", "pages")}
        if node_type is None:
            for link in LINKS:
                links[link]["interval"] = None if self.intervals is None else list(self.intervals[link])
        return links

    def _tiers(self, node_type: str | None) -> dict[str, Any]:
        types = self._types(node_type)
        return {
            tier: {
                "rows": self.rows(tier, node_type),
                "bytes": sum(self.rows(tier, t) * self.row_bytes[t] for t in types),
                "reads_per_epoch": sum(self.reads[t][tier] for t in types) / self.epochs,
            }
            for tier in TIERS
        }


def link_weights(num_peers: int) -> FloatArray:
    """Share of each tier's reads that goes over each link: float64, shape (links, tiers), columns sum to 1."""
    local = 1 / num_peers if num_peers else 0.0
    return np.array([[1, local, 0, 0], [0, 1 - local, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]], np.float64)


def link_intervals(rows: Rows, hits: list[IntArray], bootstrap: Bootstrap, num_peers: int) -> Intervals | None:
    """Error bars of each link's share of all bytes, from the rows up to each end of a tier that each group of batches
    read: int64, shape (groups, tiers + 1), for each type.
    """
    per_tier = sum(size * np.diff(of_type, axis=1) for size, of_type in zip(rows.row_bytes, hits, strict=True))
    shares = bootstrap.ratios(np.asarray(per_tier), np.asarray(per_tier).sum(axis=1))
    if shares is None:
        return None
    ends = middle(shares @ link_weights(num_peers).T)
    return {link: (low, high) for link, (low, high) in zip(LINKS, ends.tolist(), strict=True)}
