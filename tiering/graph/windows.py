"""COO to CSC within a memory budget: the edges are streamed once to count, and once per window of the result.

A window is a run of 64 MiB blocks of the file being made, as long as memory allows. Blocks are written when the whole
edge list has passed, so a killed run goes on from the first block that is missing, even with another budget.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.execution import Budget
from tiering.formats.artifact import ArtifactWriter
from tiering.formats.protocols import EdgeData
from tiering.io.blocks import BlockFile, aligned_bytes
from tiering.io.checksum import BLOCK_BYTES
from tiering.io.storage import open_raw
from tiering.io.streaming import Streamed
from tiering.progress import progress
from tiering.units import format_count

AnyArray = npt.NDArray[Any]

CHUNK_BYTES_PER_EDGE = 56
"""Of an edge of a chunk while it is placed: its record, its value and, where they are made, its id (24 bytes); and of
two chunks of sources and destinations, one being placed, one being read (32)."""
LARGEST_CHUNK, SMALLEST_CHUNK = 16 << 20, 1 << 18
"""Edges of a chunk."""
CHUNK_SHARE = 16
"""A chunk takes one part in so many of the memory that is left."""
Values: TypeAlias = "Callable[[slice], AnyArray]"
"""Values of the edges of a chunk."""


@dataclass(frozen=True)
class CscSizes:
    """What decides the memory of a conversion."""

    num_edges: int
    num_src: int
    num_dst: int
    item_bytes: tuple[int, ...] = ()
    """Bytes of a value of each array that runs along the edges, edge ids included."""

    @property
    def id_bytes(self) -> int:
        """Bytes of an id in ``indices``: 4, or 8 where the source type has 2^31 nodes or more."""
        return 8 if self.num_src >= 2**31 else 4

    def in_memory(self) -> int:
        """Peak of the conversion in memory: the kernel's records and result, or the result and one sorted array.

        8 bytes per node; per edge 8 (16 with 64-bit ids or edge data, 24 with both) and the id, with edge data 8 more;
        or the id, 8 and the largest value.
        """
        record = 8 * (1 + (self.id_bytes == 8) + bool(self.item_bytes))
        positions = 8 if self.item_bytes else 0
        kernel = record + self.id_bytes + positions
        sorting = self.id_bytes + positions + max(self.item_bytes, default=0)
        return 8 * (self.num_dst + 1) + self.num_edges * max(kernel, sorting)

    def by_windows(self) -> int:
        """Least memory of the conversion by windows: 8 bytes per node, two blocks and the smallest chunk."""
        return 8 * (self.num_dst + 1) + 2 * BLOCK_BYTES + SMALLEST_CHUNK * CHUNK_BYTES_PER_EDGE


def write_windows(
    writer: ArtifactWriter,
    folder: str,
    edges: EdgeData,
    sizes: CscSizes,
    names: Sequence[str],
    budget: Budget,
    threads: int,
) -> None:
    """Write ``indptr``, ``indices`` and the arrays `names` that run along the edges; what is there already stays.

    Raises
    ------
    BudgetError
        If the least memory is more than the budget leaves.
    ValueError
        Naming an edge whose id is out of range.
    """
    what = f"{format_count(sizes.num_dst)} nodes, 8 bytes each, and two blocks of 64 MiB"
    budget.require(sizes.by_windows(), f"{folder}: {what}")
    chunk = max(SMALLEST_CHUNK, min(LARGEST_CHUNK, budget.left() // (CHUNK_SHARE * CHUNK_BYTES_PER_EDGE)))
    if not writer.has(f"{folder}/indptr"):
        writer.put(f"{folder}/indptr", _count(edges, sizes, chunk, threads))
    indptr = open_raw(writer.path / folder / "indptr", np.dtype(np.int64), (sizes.num_dst + 1,))
    placing = _Placing(edges, sizes.num_src, indptr, chunk, budget, threads)
    placing.write(writer, f"{folder}/indices", (np.dtype(f"int{8 * sizes.id_bytes}"), ()), None)
    for name in names:
        values = edges.edge_ids if name == "edge_ids" else edges.data[name]
        kind = (np.dtype(np.int64), ()) if values is None else (values.dtype, values.shape[1:])
        placing.write(writer, f"{folder}/{name}", kind, positions if values is None else values.__getitem__)


def positions(part: slice) -> npt.NDArray[np.int64]:
    """Numbers of the edges of a chunk."""
    return np.arange(part.start, part.stop, dtype=np.int64)


def _count(edges: EdgeData, sizes: CscSizes, chunk: int, threads: int) -> npt.NDArray[np.int64]:
    """The indptr; destinations are checked on the way, sources where they are placed."""
    indptr = np.zeros(sizes.num_dst + 1, np.int64)
    with Streamed([edges.dst], chunk) as stream, progress(sizes.num_edges, "count", "edge", scale=True) as bar:
        for first, end, (dst,) in stream:
            native.count_destinations(dst, first, indptr[1:], threads)
            bar.update(end - first)
    return np.cumsum(indptr, out=indptr)


@dataclass(frozen=True)
class _Placing:
    """Makes files whose entries lie in the order of the columns."""

    edges: EdgeData
    num_src: int
    indptr: npt.NDArray[np.int64]
    chunk: int
    budget: Budget
    threads: int

    def write(
        self, writer: ArtifactWriter, name: str, kind: tuple[np.dtype[Any], tuple[int, ...]], values: Values | None
    ) -> None:
        """Write one file: `values` by edge, or the sources."""
        dtype, tail = kind
        item = dtype.itemsize * int(np.prod(tail, dtype=np.int64))
        if writer.has(name):
            return
        with writer.blocks(name, dtype.name, (self.edges.num_edges, *tail)) as file:
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
