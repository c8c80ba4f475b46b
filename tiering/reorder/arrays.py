"""Whole arrays: write them in blocks, hold them in memory, or make them by windows where they do not fit there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.artifacts.checksum import BLOCK_BYTES
from tiering.artifacts.direct_io import aligned_bytes
from tiering.artifacts.file_writer import FileWriter
from tiering.artifacts.storage import open_raw
from tiering.artifacts.streaming import Streamed
from tiering.artifacts.windows import make_missing
from tiering.artifacts.writer import ArtifactWriter
from tiering.memory import Budget

AnyArray = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]

CHUNK_ENTRIES = 1 << 19
"""Entries of a chunk."""
CHUNK_BYTES_PER_ENTRY = 64
"""Of a chunk: what is read, twice, and what is made of it."""

SMALL_ROW = 64
"""Bytes of a row up to which it is scattered alone, past windows; larger ones go as feature rows do."""
SMALL_CHUNK_BYTES = CHUNK_ENTRIES * CHUNK_BYTES_PER_ENTRY // 4
"""Of a chunk of such rows: two being read, with a rank each."""


def put(writer: ArtifactWriter, name: str, array: AnyArray) -> None:
    """Write an array in blocks: past the page cache, several side by side."""
    with writer.file(name, array.dtype.name, array.shape) as file:
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        missing = file.missing()
        if len(missing) == file.num_blocks:
            file.write(0, flat)
        else:
            for block in missing:
                file.write(block, flat[slice(*file.span(block))])


def held(array: AnyArray) -> AnyArray:
    """An array in memory, in huge pages where the system has them: what is read at random."""
    if not isinstance(array, np.memmap):
        return array
    copy: AnyArray = aligned_bytes(array.nbytes).view(array.dtype)
    with Streamed([array], CHUNK_ENTRIES) as stream:
        for first, end, (part,) in stream:
            copy[first:end] = part
    return copy


def rows(array: AnyArray) -> Bytes:
    """A contiguous array as rows of bytes."""
    return array.view(np.uint8).reshape(array.shape[0], -1)


def write_by_windows(
    file: FileWriter, dtype: np.dtype[Any], budget: Budget, fill: Callable[[int, AnyArray], None]
) -> None:
    """Write the missing blocks of a file front to back: ``fill(first entry, window)`` makes as many as fit."""
    room = budget.left() - small_chunk()

    def make(blocks: range) -> None:
        begin, stop = file.span(blocks.start)[0], file.span(blocks.stop - 1)[1]
        memory = aligned_bytes(stop - begin)
        fill(begin // dtype.itemsize, memory.view(dtype))
        file.write(blocks.start, memory)

    make_missing(file, lambda blocks: len(blocks) * BLOCK_BYTES <= room, make)


def write_rows(file: FileWriter, source: Bytes, old_to_new: AnyArray, budget: Budget, threads: int) -> None:
    """Write small rows in rank order, a window at a time: `source` streams past each.

    Parameters
    ----------
    file
        What is made; its blocks hold whole rows (`whole_rows`).
    source
        Rows of bytes in the old order; `old_to_new` is the rank of each.
    """
    row_bytes = source.shape[1]

    def fill(first: int, window: AnyArray) -> None:
        out = window.reshape(-1, row_bytes)
        with Streamed([source, old_to_new], max(1, SMALL_CHUNK_BYTES // row_bytes)) as stream:
            for _, _, (part, ranks) in stream:
                native.scatter_rows(part, ranks, first // row_bytes, out, threads)

    write_by_windows(file, np.dtype(np.uint8), budget, fill)


def small_chunk() -> int:
    """Bytes of the chunks beside a window."""
    return CHUNK_ENTRIES * CHUNK_BYTES_PER_ENTRY


def whole_rows(row_bytes: int) -> bool:
    """Whether rows are small and a block holds a whole number of them."""
    return row_bytes <= SMALL_ROW and BLOCK_BYTES % row_bytes == 0


def write_offsets(
    writer: ArtifactWriter, name: str, indptr: AnyArray, old_to_new: AnyArray, budget: Budget, threads: int
) -> None:
    """Write the offsets of the columns under their new ids, a window at a time; `indptr` is sound."""
    with writer.file(name, "int64", indptr.shape) as file:

        def fill(first: int, window: AnyArray) -> None:
            """Degrees to the places behind their columns, then summed up on what an earlier window ended with."""
            last = int(indptr[0])
            with Streamed([indptr[1:], old_to_new], CHUNK_ENTRIES) as stream:
                for _, _, (ends, places) in stream:
                    degrees = np.diff(ends, prepend=last)
                    last = int(ends[-1])
                    native.scatter_rows(rows(degrees), places, first - 1, rows(window), threads)
            if first:
                window[0] += open_raw(file.path, np.dtype(np.int64), indptr.shape)[first - 1]
            np.cumsum(window, out=window)

        write_by_windows(file, np.dtype(np.int64), budget, fill)


def write_inverse(writer: ArtifactWriter, name: str, order: AnyArray, budget: Budget, threads: int) -> None:
    """Write the inverse of a permutation, a window at a time.

    Raises
    ------
    ValueError
        If it is no permutation: then an id is missing.
    """
    with writer.file(name, order.dtype.name, order.shape) as file:

        def fill(first: int, window: AnyArray) -> None:
            window[:] = -1
            with Streamed([order], CHUNK_ENTRIES) as stream:
                for begin, end, (ids,) in stream:
                    ranks = np.arange(begin, end, dtype=order.dtype)
                    native.scatter_rows(rows(ranks), ids, first, rows(window), threads)
            if window.min() < 0:
                raise ValueError(f"id {first + int(np.argmax(window < 0))} is missing")

        write_by_windows(file, order.dtype, budget, fill)
