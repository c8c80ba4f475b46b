"""COO to CSC by windows of the result: the edges are streamed once to count, and once for each window.

A window is a run of 64 MiB blocks of the file being made, as long as memory allows. Blocks are written when the whole
edge list has passed, so a killed run goes on from the first block that is missing, even with another budget.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.artifacts.direct_io import aligned_bytes
from tiering.artifacts.file_writer import FileWriter
from tiering.artifacts.streaming import Streamed
from tiering.artifacts.windows import Window, make_missing
from tiering.formats.protocols import EdgeData
from tiering.graph.sizes import CHUNK_BYTES_PER_EDGE, LARGEST_CHUNK, SMALLEST_CHUNK, CscSizes
from tiering.memory import Budget
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

    def fill(self, file: FileWriter, item: int, values: Values | None = None) -> None:
        """Write the blocks of a file that are missing: `values` by edge, or the sources; `item` bytes each.

        Raises
        ------
        ValueError
            Naming an edge whose source is out of range.
        """
        room = self.budget.left() - self.chunk * CHUNK_BYTES_PER_EDGE
        make_missing(
            file,
            lambda blocks: Window.of(file, blocks, item, self.indptr).memory(item) <= room,
            lambda blocks: self.make(file, blocks, item, values),
        )

    def make(self, file: FileWriter, blocks: range, item: int, values: Values | None = None) -> None:
        """Make consecutive blocks of a file, whichever they are; arguments as of `fill`."""
        window = Window.of(file, blocks, item, self.indptr)
        first, columns = window.first, window.columns
        cursors = np.array(self.indptr[columns.start : columns.stop])
        out = aligned_bytes((window.end - first) * item)
        desc = f"{file.path.name} {blocks.start + 1}-{blocks.stop} of {file.num_blocks}"
        arrays = [self.edges.dst] if values is not None else [self.edges.dst, self.edges.src]
        with Streamed(arrays, self.chunk) as stream, progress(self.edges.num_edges, desc, "edge", scale=True) as bar:
            for from_, to, (dst, *src) in stream:
                if values is None:
                    native.place_sources(
                        src[0], dst, from_, self.num_src, first, columns.start, cursors, out, self.threads
                    )
                else:
                    chunk = np.ascontiguousarray(values(slice(from_, to))).reshape(to - from_, -1).view(np.uint8)
                    native.place_edge_data(chunk, dst, first, columns.start, cursors, out, self.threads)
                bar.update(to - from_)
        file.write(blocks.start, window.bytes_of(out, item))
