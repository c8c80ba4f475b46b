"""Feature rows encoded as they are read: a table of the source, and the codec by which its rows are stored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tiering.artifacts.manifest import storage_dtype
from tiering.artifacts.reader import chunks
from tiering.artifacts.storage import Bytes
from tiering.codecs import AUTO, CODECS, Codec, CodecLoss, LossMeter, fit_codec, float_rows, half_holds
from tiering.formats.feature_rows import CHUNK_BYTES, map_rows
from tiering.formats.features import FeatureTable
from tiering.memory import available_memory
from tiering.text.progress import progress

_LOOK_BYTES = 1 << 20  # of a block in which `AUTO` looks for a number that changes


@dataclass
class EncodedTable:
    """A feature table whose rows are stored by a codec; `row_bytes` and `bytes` are of stored rows.

    Rows are encoded once `fit` or `codec` has given the parameters, by one thread at a time.
    """

    source: FeatureTable
    name: str  # of the codec
    where: str  # the table, for messages
    exact: bool = False  # whether no number changes: nothing is measured
    codec: Codec = field(init=False)
    _meter: LossMeter = field(init=False)

    @property
    def rows(self) -> int:
        """Rows of the table."""
        return self.source.rows

    @property
    def dim(self) -> int:
        """Numbers of a row."""
        return self.source.dim

    @property
    def dtype(self) -> str:
        """Dtype of the source."""
        return self.source.dtype

    @property
    def path(self) -> Path:
        """The file of the source."""
        return self.source.path

    @property
    def row_order(self) -> str:
        """The order of the rows, as of `FeatureTable`."""
        return self.source.row_order

    @property
    def row_bytes(self) -> int:
        """Bytes of a stored row."""
        return CODECS[self.name].stored_bytes(self.dim)

    @property
    def bytes(self) -> int:
        """Bytes of all stored rows."""
        return self.rows * self.row_bytes

    def fit(self, threads: int) -> Codec:
        """Return the codec for this table's rows. Cost: one pass over the source for codecs that depend on numbers."""
        with progress(self.source.bytes, f"fit {self.name}", "B", scale=True) as bar:
            blocks = (block for block in source_blocks(self.source) if bar.update(block.nbytes) or True)
            return fit_codec(self.name, blocks, self.dim, self.dtype, self.where, threads)

    def encode(self, rows: Bytes, threads: int, out: Bytes | None = None) -> Bytes:
        """Return rows of the source as they are stored; measure the loss of the first `rows` rows that pass."""
        floats = float_rows(rows.view(storage_dtype(self.dtype)), self.dtype, self.where)
        measured = not self.exact and self._meter.num_rows < self.rows
        return (self._meter if measured else self._meter.codec).encode(floats, threads, out)

    def measure(self, threads: int) -> CodecLoss:
        """Return the loss of all rows; read them again if some have not passed, as where a stopped run goes on."""
        if self.exact:
            return CodecLoss(0, 0, -1, 0, self.dim, self.dim)
        if self._meter.num_rows != self.rows:
            self._meter = LossMeter(self.codec)
            for block in source_blocks(self.source):
                self.encode(block.view(np.uint8), threads)
        return self._meter.loss()

    def use(self, codec: Codec) -> None:
        """Encode rows by `codec` from now on, and begin to measure its loss."""
        self.codec, self._meter = codec, LossMeter(codec)


def codec_name(table: FeatureTable | EncodedTable) -> str:
    """Return the name of the codec by which a table's rows are stored; none: as they are."""
    return table.name if isinstance(table, EncodedTable) else ""


def source_blocks(table: FeatureTable, nbytes: int = CHUNK_BYTES // 4) -> Iterator[np.ndarray[Any, Any]]:
    """Yield the rows of a table front to back, in blocks of its dtype, verified where reads are."""
    cached = table.bytes < available_memory() // 2
    rows, step = map_rows(table, random=cached), max(1, nbytes // max(1, table.row_bytes))
    if cached:  # through the page cache, from which they are taken next
        blocks: Iterator[Any] = (rows[first : first + step] for first in range(0, table.rows, step))
    else:
        blocks = (part for _, _, (part,) in chunks([rows], step))
    yield from (np.ascontiguousarray(block).view(storage_dtype(table.dtype)) for block in blocks)


def encoded_table(table: FeatureTable, dtype: str, where: str, *, look: bool) -> FeatureTable | EncodedTable:
    """Return the table by which rows are stored as `dtype`, a codec or `AUTO`: itself where that is its own dtype.

    `AUTO` reads until the first number that ``float16`` cannot hold; without `look` it counts as found.
    """
    if dtype != AUTO:
        return table if dtype == table.dtype else EncodedTable(table, dtype, where)
    if not look or table.dtype != "float32" or not all(map(half_holds, source_blocks(table, _LOOK_BYTES))):
        return table
    return EncodedTable(table, "float16", where, exact=True)
