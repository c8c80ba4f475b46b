"""Arrays on their way into the files of an export: streamed, in the order of the export, within a budget of memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tiering.artifacts.file_writer import FileWriter, appending_memory
from tiering.artifacts.reader import chunks
from tiering.artifacts.storage import open_raw
from tiering.errors import FormatError
from tiering.exports.source import Source, Table
from tiering.exports.tier_rows import TierRows
from tiering.exports.writer import ExportWriter
from tiering.formats.feature_rows import take
from tiering.memory import Budget
from tiering.progress import Progress
from tiering.reorder.rows import PermutedRows, RowSizes

AnyArray = np.ndarray[Any, Any]

PIECE_BYTES = 8 << 20
"""Bytes that are copied at a time."""
COPY_MEMORY = 8 * PIECE_BYTES
"""Bytes that copying an array takes: two pieces being read, one converted, what is being written, and room."""
_COLUMNS = 1 << 18
"""Columns whose offsets are looked at together."""
_CHUNK_BYTES = 32 << 20


def append_array(file: FileWriter, array: AnyArray, stored: np.dtype[Any], limit: int | None = None) -> None:
    """Append an array, converted to `stored`; with a `limit`, integers outside 0..limit - 1 are refused."""
    item = max(1, array.nbytes // max(1, array.shape[0]))
    for first, _, (part,) in chunks([array], max(1, PIECE_BYTES // item)):
        if limit is not None and not (0 <= part.min() <= part.max() < limit):
            raise FormatError(
                f"{file.path.stem}: entry {first} or one behind it is no id: expected 0..{limit - 1}, found "
                f"{part.min()}..{part.max()}; the graph is damaged: run `tiering check --full` on it"
            )
        file.append(part.astype(stored, copy=False))


def append_destinations(file: FileWriter, indptr: AnyArray) -> None:
    """Append the column, int64, of every entry, front to back, behind what was appended before."""
    step = PIECE_BYTES // 8
    for column in range(0, indptr.shape[0] - 1, _COLUMNS):
        bounds = np.array(indptr[column : column + _COLUMNS + 1])
        for first in range(int(bounds[0]), int(bounds[-1]), step):
            degrees = np.diff(np.clip(bounds, first, first + step))
            file.append(np.repeat(np.arange(column, column + degrees.size, dtype=np.int64), degrees))


def append_split(file: FileWriter, ids: AnyArray, new_ids: AnyArray | None, threads: int) -> None:
    """Append the ids of a split, under their new ids if those are given."""
    for first in range(0, ids.shape[0], PIECE_BYTES // 8):
        part = ids[first : first + PIECE_BYTES // 8]
        file.append((part if new_ids is None else take(new_ids, part, threads)).astype(np.int64, copy=False))


def row_sizes(table: Table) -> RowSizes:
    """Pieces in which rows are permuted: small tables need little memory."""
    return RowSizes(chunk=max(1, min(_CHUNK_BYTES, table.bytes)))


def streaming_memory(table: Table) -> int:
    """Bytes that copying rows in the order in which they lie takes."""
    step = max(1, PIECE_BYTES // max(1, table.row_bytes))
    held = table.pieces_memory(step) if isinstance(table, TierRows) else 2 * min(_CHUNK_BYTES, table.bytes)
    return held + appending_memory(table.bytes)


def permuting_memory(table: Table) -> int:
    """Bytes that permuting rows takes beside what `tiering.reorder.rows` plans."""
    held = table.pieces_memory(row_sizes(table).piece_rows(table)) if isinstance(table, TierRows) else 0
    return held + appending_memory(table.bytes)


def append_rows(
    file: FileWriter, source: Source, node_type: str, scratch: Path, budget: Budget, threads: int, bar: Progress
) -> None:
    """Append the feature rows of a type in the order of the export, from what is there on."""
    table, (forth, back) = source.table(node_type), source.maps(node_type)
    if not table.row_bytes or not table.rows:
        return
    start = file.done // table.row_bytes
    bar.update(start * table.row_bytes)
    if forth is None and isinstance(table, TierRows):
        for first, rows in table.pieces(max(1, PIECE_BYTES // table.row_bytes), start):
            file.append(rows, first * table.row_bytes)
            bar.update(rows.nbytes)
        return
    left = budget.without(permuting_memory(table))
    with PermutedRows(
        table, forth, back, budget=left, scratch=scratch, threads=threads, sizes=row_sizes(table)
    ) as permuted:
        for first, rows in permuted.chunks(start, table.rows):
            file.append(rows, first * table.row_bytes)
            bar.update(rows.nbytes)


def mapped(writer: ExportWriter, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> AnyArray:
    """A file without header that was just written."""
    return open_raw(writer.path / name, dtype, shape)
