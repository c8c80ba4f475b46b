"""What a task hands to others: one object of parts, each part some columns of one length, with a checksum of its own.

Part after part, and in a part column after column, each at a multiple of 64 bytes. Then one record for each part: where
it begins, its rows, which columns it has, the XXH3-64 of its bytes; a reader needs 32 bytes of them. The rest is in the
task's manifest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from tiering.cluster.store import ObjectWriter, Store
from tiering.errors import FormatError, InternalError

Columns = Mapping[str, npt.NDArray[Any]]
LINE = 64
RECORD = np.dtype([("offset", "<u8"), ("rows", "<u8"), ("kind", "<u8"), ("digest", "<u8")])


@dataclass(frozen=True)
class Column:
    """A column of a part."""

    name: str
    dtype: str
    tail: tuple[int, ...] = ()
    """Shape of a row."""

    @property
    def row_bytes(self) -> int:
        return int(np.dtype(self.dtype).itemsize * np.prod(self.tail, dtype=np.int64))

    @classmethod
    def of(cls, name: str, array: npt.NDArray[Any]) -> Column:
        """The column that an array is a part of."""
        return cls(name, array.dtype.newbyteorder("<").str, tuple(array.shape[1:]))


@dataclass(frozen=True)
class Segment:
    """Where a segment lies and what it consists of, as the manifest of its task says."""

    key: str
    parts: int
    kinds: tuple[tuple[Column, ...], ...]
    """What columns parts have; a record names one of these by number."""
    records_at: int
    """Offset of the records."""
    digest: str
    """XXH3-64 of the records, which hold those of the parts: of all content."""

    @property
    def nbytes(self) -> int:
        return self.records_at + self.parts * RECORD.itemsize

    def to_json(self) -> dict[str, Any]:
        kinds = [[[column.name, column.dtype, list(column.tail)] for column in kind] for kind in self.kinds]
        return {**vars(self), "kinds": kinds}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Segment:
        kinds = tuple(
            tuple(Column(name, dtype, tuple(tail)) for name, dtype, tail in kind) for kind in document["kinds"]
        )
        return cls(**{**document, "kinds": kinds})


def padded_bytes(rows: int, columns: Sequence[Column]) -> int:
    """Bytes of a part of so many rows."""
    return sum(-(-rows * column.row_bytes // LINE) * LINE for column in columns)


@dataclass
class SegmentWriter:
    """Writes the parts of a segment in their order to an object, which the caller closes after `finish`."""

    key: str
    out: ObjectWriter
    kinds: list[tuple[Column, ...]] = field(default_factory=list)
    records: list[tuple[int, int, int, int]] = field(default_factory=list)
    at: int = 0

    def add(self, columns: Columns) -> None:
        """Write the next part: arrays of one length along their first axis."""
        kind = tuple(Column.of(name, array) for name, array in columns.items())
        if kind not in self.kinds:
            self.kinds.append(kind)
        rows = {array.shape[0] for array in columns.values()}
        if len(rows) != 1:
            raise InternalError(f"{self.key}: columns of {sorted(rows)} rows in one part")
        begin, state = self.at, xxhash.xxh3_64()
        for data in _padded(columns):
            state.update(data.data)
            self._write(data)
        self.records.append((begin, rows.pop(), self.kinds.index(kind), state.intdigest()))

    def finish(self) -> Segment:
        """Write the records; what the segment is, once the object is closed."""
        records = np.array(self.records, RECORD)
        segment = Segment(self.key, records.size, tuple(self.kinds), self.at, _digest(records))
        self._write(records.view(np.uint8))
        return segment

    def _write(self, data: npt.NDArray[np.uint8]) -> None:
        self.out.write(data)
        self.at += data.size


def read_part(store: Store, segment: Segment, part: int) -> dict[str, npt.NDArray[Any]]:
    """The columns of a part, compared with its checksum; `FormatError` or `MissingError` if it is not what it was."""
    at = segment.records_at + part * RECORD.itemsize
    offset, rows, kind, digest = store.read(segment.key, at, RECORD.itemsize).view(RECORD)[0].item()
    kinds = segment.kinds[kind] if kind < len(segment.kinds) else ()
    nbytes = padded_bytes(rows, kinds)
    if not kinds or offset + nbytes > segment.records_at:
        raise FormatError(f"{store.url}: {segment.key}: the record of part {part} is not what was written")
    data = store.read(segment.key, offset, nbytes)
    data.flags.writeable = False
    if xxhash.xxh3_64_intdigest(data.data) != digest:
        raise FormatError(f"{store.url}: {segment.key}: part {part} is not what was written (checksum)")
    columns, begin = {}, 0
    for column in kinds:
        values = data[begin : begin + rows * column.row_bytes].view(column.dtype)
        columns[column.name] = values.reshape(rows, *column.tail)
        begin += -(-rows * column.row_bytes // LINE) * LINE
    return columns


def _padded(columns: Columns) -> Iterator[npt.NDArray[np.uint8]]:
    """The bytes of a part, column after column, each filled up to whole lines."""
    for array in columns.values():
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        yield data
        if padding := -data.size % LINE:
            yield np.zeros(padding, np.uint8)


def _digest(records: npt.NDArray[Any]) -> str:
    return xxhash.xxh3_64_hexdigest(records.tobytes())
