"""Feature rows encoded as they are read: a table of the source, and the codec by which its rows are stored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tiering.artifacts.manifest import storage_dtype
from tiering.artifacts.reader import bytes_on_disk, chunks, uncached_bytes
from tiering.artifacts.storage import Bytes
from tiering.codecs import AUTO, CODECS, Codec, CodecLoss, LossMeter, fit_codec, float_rows, half_holds, reads_rows
from tiering.formats.feature_rows import map_rows
from tiering.formats.features import FeatureTable
from tiering.memory import available_memory
from tiering.text.progress import progress

_LOOK_BYTES = 1 << 20  # of a block in which `AUTO` looks for a number that changes
_PIECE_BYTES = 8 << 20  # of float32 rows that are made of others at a time
_FIT_MEMORY = 4 * _PIECE_BYTES  # two pieces being read, one as float32 and on its way to it
_FLOAT = 4


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
    rows: int = field(init=False)
    dim: int = field(init=False)
    dtype: str = field(init=False)  # of the source
    path: Path = field(init=False)
    row_order: str = field(init=False)
    row_bytes: int = field(init=False)
    bytes: int = field(init=False)
    _meter: LossMeter = field(init=False)
    _passed: int = 0  # rows that have passed

    def __post_init__(self) -> None:
        for name in ("rows", "dim", "dtype", "path", "row_order"):
            setattr(self, name, getattr(self.source, name))
        self.row_bytes = CODECS[self.name].stored_bytes(self.dim)
        self.bytes = self.rows * self.row_bytes

    @property
    def fit_memory(self) -> int:
        """Memory of the pass over the source that finds the codec, in bytes; 0 if none is needed."""
        passes = self.exact or reads_rows(self.name, self.dtype)
        return min(_FIT_MEMORY, 4 * self.rows * self.dim * _FLOAT) if passes else 0

    def fit_read(self) -> int:
        """Return the bytes that this pass reads from disk."""
        if not self.path.exists():  # it will have been written past the page cache
            return self.source.bytes
        rows = map_rows(self.source, random=False)
        return uncached_bytes(rows) if is_cached(self.source) else bytes_on_disk([rows])

    def fit(self, threads: int) -> Codec:
        """Return the codec for this table's rows. Cost: a pass over the source, but where `AUTO` has seen all rows."""
        if self.exact:
            return CODECS[self.name](self.dim)
        with progress(self.source.bytes, f"fit {self.name}", "B", scale=True) as bar:
            blocks = (block for block in source_blocks(self.source) if bar.update(block.nbytes) or True)
            return fit_codec(self.name, blocks, self.dim, self.dtype, self.where, threads)

    def encode(self, rows: Bytes, first: int, threads: int, out: Bytes | None = None) -> Bytes:
        """Return rows of the source as they are stored, and measure the loss of those that have not passed before.

        Rows pass in an order, from front to back; of these, `first` is the number of the first.
        """
        out = np.empty((len(rows), self.row_bytes), np.uint8) if out is None else out
        known = len(rows) if self.exact else min(len(rows), max(0, self._passed - first))
        for encoder, own in ((self._meter.codec, slice(0, known)), (self._meter, slice(known, None))):
            encode_rows(encoder, rows[own], self.dtype, self.where, threads, out[own])
        self._passed = max(self._passed, first + len(rows))
        return out

    def measure(self, threads: int) -> CodecLoss:
        """Return the loss of all rows; read them again if some have not passed, as where a stopped run is resumed."""
        if self.exact:
            return CodecLoss(0, 0, -1, 0, self.dim, self.dim)
        if self._meter.num_rows != self.rows:
            self.use(self.codec)
            for block in source_blocks(self.source):
                self.encode(block.view(np.uint8), self._passed, threads)
        return self._meter.loss()

    def use(self, codec: Codec) -> None:
        """Encode rows by `codec` from now on, and begin to measure its loss."""
        self.codec, self._meter, self._passed = codec, LossMeter(codec, self.where), 0


def encode_rows(
    encoder: Codec | LossMeter, rows: Bytes, dtype: str, where: str, threads: int, out: Bytes | None = None,
    first: int = 0,
) -> Bytes:  # fmt: skip
    """Return rows of `dtype`, of which the first is number `first`, as a codec stores them, in `out` if it is given.

    Memory: a piece of them as float32, where they are not.
    """
    codec = encoder.codec if isinstance(encoder, LossMeter) else encoder
    out = np.empty((len(rows), codec.row_bytes), np.uint8) if out is None else out
    step = max(1, len(rows) if dtype == "float32" else _PIECE_BYTES // (_FLOAT * codec.dim))
    for at in range(0, len(rows), step):
        piece = float_rows(rows[at : at + step].view(storage_dtype(dtype)), dtype, where, first + at)
        encoder.encode(piece, threads, out[at : at + step])
    return out


def codec_name(table: FeatureTable | EncodedTable) -> str:
    """Return the name of the codec by which a table's rows are stored; none: as they are."""
    return table.name if isinstance(table, EncodedTable) else ""


def is_cached(table: FeatureTable) -> bool:
    """Return whether the page cache has room for a table."""
    return table.bytes < available_memory() // 2


def source_blocks(table: FeatureTable, nbytes: int = _PIECE_BYTES) -> Iterator[np.ndarray[Any, Any]]:
    """Yield rows of a table front to back, in blocks of its dtype, `nbytes` as float32; verified where reads are."""
    cached = is_cached(table)
    rows, step = map_rows(table, random=cached), max(1, nbytes // max(table.row_bytes, _FLOAT * table.dim))
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
