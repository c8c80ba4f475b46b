"""Striping of rows in rank order over files: page by page, in turn, range by range.

An item is a row, or a piece of a row that is larger than a page: none crosses the end of a page. A partition is what
one file has of one range; partitions are numbered range by range, in it file by file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.artifacts.manifest import id_bytes
from tiering.run.grid import equal_bounds
from tiering.run.step import TaskContext

Int64Array = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Striping:
    """The striping of the rows of a tier, ranks [first, end)."""

    first: int
    end: int
    files: int
    per_page: int  # items of a page; in memory tiers each row is a page
    per_row: int  # pieces of a row; 1 for a whole row
    first_page: int  # number of the first page: page p goes to file p mod `files`
    bounds: Sequence[int]
    """Where ranges begin, and the last ends, in what is striped out, from 0 on. They begin with a page."""

    @classmethod
    def plan(
        cls, first: int, end: int, parts: int, files: int = 1, per_page: int = 1, per_row: int = 1, first_page: int = 0
    ) -> Striping:
        """Return a striping with ranges of about the same size, at most `parts` of them."""
        together = np.lcm(per_page, per_row)
        groups = -(-(end - first) * per_row // together)
        cuts = equal_bounds(groups, min(groups, parts))
        bounds = [min(int(cut * together), (end - first) * per_row) for cut in cuts]
        return cls(first, end, files, per_page, per_row, first_page, bounds)

    @property
    def num_ranges(self) -> int:
        """Ranges of ranks in the tier."""
        return len(self.bounds) - 1

    @property
    def num_partitions(self) -> int:
        """Partitions of a shuffle file: one for each range and file."""
        return self.num_ranges * self.files

    @property
    def counts(self) -> list[int]:
        """Items of each partition."""
        counts: list[int] = np.diff(self._starts()).tolist()
        return counts

    @property
    def most(self) -> int:
        """Items of the largest partition."""
        return max(self.counts, default=0)

    def _pages(self) -> Int64Array:
        """Return the number of the first page of each range."""
        return self.first_page + np.array(self.bounds[:-1], np.int64) // self.per_page

    def _starts(self) -> Int64Array:
        """Return the bounds of the partitions, laid one after the other."""
        bounds = np.array(self.bounds, np.int64)
        sizes = (bounds[1:] - bounds[:-1])[:, None]
        pages: Int64Array = -(-sizes // self.per_page)
        turn: Int64Array = np.mod(np.arange(self.files) - self._pages()[:, None], self.files)
        counts = (pages - turn + self.files - 1) // self.files * self.per_page
        counts -= np.where((pages - 1) % self.files == turn, pages * self.per_page - sizes, 0)
        return np.concatenate([[0], np.cumsum(counts.reshape(-1))])

    def order_items(self, numbers: Int64Array, threads: int) -> tuple[npt.NDArray[Any], Int64Array, npt.NDArray[Any]]:
        """Return the order of items by partition, the size of each partition, and the items' places in it."""
        starts = self._starts()
        if self.files > 1:
            ranges = np.searchsorted(self.bounds, numbers, "right") - 1
            page, slot = np.divmod(numbers - np.array(self.bounds)[ranges], self.per_page)
            file = (self._pages()[ranges] + page) % self.files
            numbers = starts[ranges * self.files + file] + page // self.files * self.per_page + slot
        order, counts = native.partition(numbers, starts, threads)
        places = numbers[order] - np.repeat(starts[:-1], counts)
        return order, counts, places.astype(f"i{id_bytes(self.most)}")


def stripe_rows(context: TaskContext, striping: Striping, ranks: npt.NDArray[Any], rows: Bytes, stride: int) -> None:
    """Write those rows that belong to a tier as partitions, with their places; `ranks` are the rows'.

    Pieces are cut from rows that are `stride` bytes apart.
    """
    own = np.flatnonzero((ranks >= striping.first) & (ranks < striping.end))
    numbers = ranks[own].astype(np.int64) - striping.first
    if striping.per_row > 1:
        padded = np.zeros((own.size, stride), np.uint8)
        padded[:, : rows.shape[1]] = rows[own]
        rows, own = padded.reshape(own.size * striping.per_row, -1), np.arange(own.size * striping.per_row)
        numbers = (numbers[:, None] * striping.per_row + np.arange(striping.per_row)).reshape(-1)
    order, counts, places = striping.order_items(numbers, context.threads)
    striped = np.empty((own.size, rows.shape[1]), np.uint8)
    if striped.size:
        native.gather_rows(rows, own[order], striped, context.threads)
    context.write_all({"place": places, "row": striped}, np.cumsum(counts))


def as_pages(rows: np.ndarray[Any, Any], stride: int, per_page: int, page_bytes: int) -> np.ndarray[Any, Any]:
    """Return rows, uint8 of shape (n, row_bytes), as pages, uint8 of shape (pages, page_bytes).

    The first row is at a page's start; `stride` and `per_page` as in `SsdRows`.
    """
    count, row_bytes = rows.shape
    if stride == row_bytes and per_page * stride == page_bytes and count % per_page == 0:
        return rows.reshape(-1, page_bytes)
    if per_page:
        pages, run = np.zeros((-(-count // per_page), page_bytes), np.uint8), per_page
    else:
        pages, run = np.zeros((-(-count * stride // page_bytes), page_bytes), np.uint8), count
    # A run of rows, `stride` apart, begins with a page.
    slots = np.lib.stride_tricks.as_strided(pages, (-(-count // run), run, row_bytes), (page_bytes, stride, 1))
    whole = count // run
    slots[:whole] = rows[: whole * run].reshape(whole, run, row_bytes)
    if whole < slots.shape[0]:
        slots[whole, : count - whole * run] = rows[whole * run :]
    return pages
