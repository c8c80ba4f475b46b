"""COO to CSC by windows of the result: the edges are streamed once to count, and once for each window.

A window is a run of 64 MiB blocks of the file being made, as long as memory allows. Blocks are written when the whole
edge list has passed, so a killed run goes on from the first block that is missing, even with another budget.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.execution import Budget
from tiering.formats.protocols import EdgeData
from tiering.graph.sizes import CHUNK_BYTES_PER_EDGE, LARGEST_CHUNK, SMALLEST_CHUNK, CscSizes
from tiering.io.blocks import BlockFile, aligned_bytes
from tiering.io.streaming import Streamed
from tiering.progress import progress

AnyArray = npt.NDArray[Any]

CHUNK_SHARE = 16
"""A chunk takes one part in so many of the memory that is left."""
Values: TypeAlias = "Callable[[slice], AnyArray]"
"""Values of the edges of a chunk."""


def positions(part: slice) -> npt.NDArray[np.int64]:
    """Numbers of the edges of a chunk."""
    return np.arange(part.start, part.stop, dtype=np.int64)


def chunk_edges(budget: Budget) -> int:
    """Edges of a chunk."""
    return max(SMALLEST_CHUNK, min(LARGEST_CHUNK, budget.left() // (CHUNK_SHARE * CHUNK_BYTES_PER_EDGE)))


def count_columns(edges: EdgeData, sizes: CscSizes, budget: Budget, threads: int) -> npt.NDArray[np.int64]:
    """The indptr; destinations are checked on the way, sources where they are placed."""
    indptr = np.zeros(sizes.num_dst + 1, np.int64)
    with (
        Streamed([edges.dst], chunk_edges(budget)) as stream,
        progress(sizes.num_edges, "count", "edge", scale=True) as bar,
    ):
        for first, end, (dst,) in stream:
            native.count_destinations(dst, first, indptr[1:], threads)
            bar.update(end - first)
    return np.cumsum(indptr, out=indptr)


class Windows:
    """Makes files whose entries lie in the order of the columns, window by window.

    Parameters
    ----------
    edges
        The edge list.
    sizes
        Of the relation.
    indptr
        Of the result; every destination was checked.
    """

    def __init__(
        self, edges: EdgeData, sizes: CscSizes, indptr: npt.NDArray[np.int64], budget: Budget, threads: int
    ) -> None:
        self.edges, self.num_src, self.indptr = edges, sizes.num_src, indptr
        self.chunk, self.budget, self.threads = chunk_edges(budget), budget, threads

    def fill(self, file: BlockFile, item: int, values: Values | None = None) -> None:
        """Write the blocks of a file that are missing: `values` by edge, or the sources; `item` bytes each.

        Raises
        ------
        ValueError
            Naming an edge whose source is out of range.
        """
        while missing := file.missing():
            self._make(file, self._window(file, missing, item), item, values)

    def _window(self, file: BlockFile, missing: Sequence[int], item: int) -> range:
        """As many of the first missing blocks in a row as there is memory for, one at least."""
        room = self.budget.left() - self.chunk * CHUNK_BYTES_PER_EDGE
        first = end = missing[0]
        for block in missing:
            begin, stop = file.span(first)[0], file.span(block)[1]
            columns = self._columns(begin // item, -(-stop // item))
            if block != end or (block > first and stop - begin + 2 * item + 8 * len(columns) > room):
                break
            end = block + 1
        return range(first, end)

    def _columns(self, first: int, end: int) -> range:
        """Columns that have entries in [first, end)."""
        return range(
            int(np.searchsorted(self.indptr, first, "right")) - 1, int(np.searchsorted(self.indptr, end, "left"))
        )

    def _make(self, file: BlockFile, blocks: range, item: int, values: Values | None) -> None:
        begin, stop = file.span(blocks.start)[0], file.span(blocks.stop - 1)[1]
        first, end = begin // item, -(-stop // item)
        columns = self._columns(first, end)
        cursors = np.array(self.indptr[columns.start : columns.stop])
        window = aligned_bytes((end - first) * item)
        desc = f"{file.path.name} {blocks.start + 1}-{blocks.stop} of {file.num_blocks}"
        arrays = [self.edges.dst] if values is not None else [self.edges.dst, self.edges.src]
        with Streamed(arrays, self.chunk) as stream, progress(self.edges.num_edges, desc, "edge", scale=True) as bar:
            for from_, to, (dst, *src) in stream:
                if values is None:
                    native.place_sources(
                        src[0], dst, from_, self.num_src, first, columns.start, cursors, window, self.threads
                    )
                else:
                    chunk = np.ascontiguousarray(values(slice(from_, to))).reshape(to - from_, -1).view(np.uint8)
                    native.place_edge_data(chunk, dst, first, columns.start, cursors, window, self.threads)
                bar.update(to - from_)
        file.write(blocks.start, window[begin - first * item : stop - first * item])
