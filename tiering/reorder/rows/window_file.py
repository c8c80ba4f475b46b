"""The file of a window: its rows in no order, each with its place in the window.

A segment, one for each piece of the table that had rows of the window, has the places, int32 (int64 for windows of 2^31
rows and more), padded to 64 bytes, and the rows behind them; it ends at a multiple of 4096 bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.artifacts.direct_io import padded
from tiering.artifacts.reader import SegmentFile
from tiering.reorder.rows.plan import LINE_BYTES, place_bytes, segment_bytes

Bytes = npt.NDArray[np.uint8]
Ids = npt.NDArray[Any]


class WindowFile:
    """A scratch file.

    Parameters
    ----------
    path
        File to create.
    rows, row_bytes
        Rows of the window.
    segments
        Segments at the most.
    """

    def __init__(self, path: Path, rows: int, row_bytes: int, segments: int) -> None:
        self._row_bytes, self._place = row_bytes, np.dtype(f"i{place_bytes(rows)}")
        self._file = SegmentFile(path, segment_bytes(rows, row_bytes, rows, segments))
        self._counts: list[int] = []

    def _rows_at(self, count: int) -> int:
        """Where the rows of a segment begin."""
        return -(-count * self._place.itemsize // LINE_BYTES) * LINE_BYTES

    def _parts(self, segment: Bytes, count: int) -> tuple[Ids, Bytes]:
        """Places and rows of a segment of `count` rows."""
        begin = self._rows_at(count)
        places = segment[: count * self._place.itemsize].view(self._place)
        return places, segment[begin : begin + count * self._row_bytes].reshape(count, self._row_bytes)

    def segment(self, memory: Bytes, count: int) -> tuple[Bytes, Ids, Bytes]:
        """A segment at the begin of aligned memory, and in it the places and rows to be filled in."""
        segment = memory[: padded(self._rows_at(count) + count * self._row_bytes)]
        return segment, *self._parts(segment, count)

    def add(self, count: int) -> int:
        """Offset of the next segment, of `count` rows."""
        self._counts.append(count)
        return self._file.add(self._rows_at(count) + count * self._row_bytes)

    def write(self, segment: Bytes, offset: int) -> None:
        """Write an added segment; from any thread."""
        self._file.write(segment, offset)

    def read(self, buffers: Sequence[Bytes]) -> Iterator[tuple[Bytes, Ids]]:
        """Rows and their places, of one segment after the other; see `SegmentFile.read`."""
        for count, segment in zip(self._counts, self._file.read(buffers), strict=True):
            places, rows = self._parts(segment, count)
            yield rows, places

    def remove(self) -> None:
        """Close and delete the file."""
        self._file.remove()
