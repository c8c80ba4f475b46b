"""Rows of a table read at random from its disk, and how fast that is beside reading in sequence."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from tiering import native
from tiering.artifacts.direct_io import direct_engine
from tiering.artifacts.storage import storage_errors
from tiering.artifacts.streaming import read_rate

DEPTH = 256
"""Reads in flight."""
_SAMPLE_ROWS = 8192


@dataclass(frozen=True)
class RowSpeed:
    """How fast a disk gives a table."""

    rows: float
    """Rows per second, at random."""
    stream: float
    """Bytes per second, front to back."""


def open_rows(path: Path, offset: int, row_bytes: int) -> native.RowReader:
    """A reader of rows that lie one after the other from byte `offset` on."""
    with storage_errors(path):
        return native.RowReader(str(path), offset, row_bytes, direct_engine(), DEPTH)


@cache
def measure_rows(path: Path, offset: int, rows: int, row_bytes: int) -> RowSpeed:
    """Measure it, once per process: some thousand rows at random, and up to 256 MiB in sequence.

    Notes
    -----
    Cost: a fraction of a second on an SSD.
    """
    count = min(rows, _SAMPLE_ROWS)
    ids = np.random.default_rng(rows).integers(0, rows, count)
    reader, out = open_rows(path, offset, row_bytes), np.empty((count, row_bytes), np.uint8)
    with storage_errors(path):
        begun = time.perf_counter()
        reader.read(ids, out)
        at_random = time.perf_counter() - begun
    rate = count / max(at_random, 1e-9)
    return RowSpeed(rate, read_rate(path, rate * row_bytes))
