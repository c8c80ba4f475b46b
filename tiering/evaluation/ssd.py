"""What the SSDs deliver: a read moves blocks, not rows, and rows of a batch may share a page.

The rule is the loader's (`ext/src/io/read_plan.cpp`): per batch and node type, every page that holds a row asked for is
read once, from the block of the first byte needed to the block of the last. It is counted on the batches judged. One
thing is left out: the loader cuts reads of more than 64 KiB, and such a cut may fall into a page.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tiering.errors import InputError
from tiering.evaluation.competing_rows import IntArray, Rows
from tiering.evaluation.ranking import Ranking
from tiering.formats.layout import SECTOR_BYTES, SsdRows
from tiering.layout.capacities import parse_page
from tiering.units import format_bytes, parse_bytes


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
    """Counts, batch by batch, what the ssd tiers of some plans read; the rankings have `places`."""

    def __init__(self, rows: Rows, rankings: Mapping[str, Ranking], units: SsdUnits) -> None:
        self._rows, self._rankings, self._units = rows, rankings, units
        sizes = zip(rows.counts, rows.row_bytes, strict=True)
        self._geometry = [SsdRows.plan(0, count, size, units.page_bytes) for count, size in sizes]

    def see(self, nodes: Mapping[str, npt.NDArray[np.int64]]) -> IntArray:
        """Reads of one batch, from its unique nodes per type: int64, shape (rankings, types, 2), bytes and pages."""
        sums = np.zeros((len(self._rankings), len(self._rows.types), 2), np.int64)
        for of_score, ranking in zip(sums, self._rankings.values(), strict=True):
            for index, node_type in enumerate(self._rows.types):
                places = ranking.places[index][nodes[node_type]]
                begins = self._geometry[index].begins(np.sort(places[places >= 0]), self._units.page_bytes)
                reads = span_reads(begins, begins + self._rows.row_bytes[index], self._units)
                of_score[index] = reads.bytes, reads.pages
        return sums

    def reads(self, sums: IntArray) -> dict[str, dict[str, SsdReads]]:
        """Per score and node type, from the sums of what was seen."""
        return {
            name: {t: SsdReads(*pair.tolist()) for t, pair in zip(self._rows.types, of_score, strict=True)}
            for name, of_score in zip(self._rankings, sums, strict=True)
        }
