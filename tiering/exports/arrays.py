"""Append arrays to the files of an export: streamed, in the order of the export, within a memory budget."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tiering.artifacts.file_writer import FileWriter, appending_memory
from tiering.artifacts.reader import chunks
from tiering.errors import FormatError
from tiering.exports.source import ExportSource, RowTable
from tiering.exports.tier_rows import TierRows
from tiering.formats.feature_rows import take
from tiering.memory import Budget
from tiering.progress import Progress
from tiering.reorder.rows import PermutedRows, RowSizes

AnyArray = np.ndarray[Any, Any]

PIECE_BYTES = 8 << 20
"""Bytes copied at a time."""
COPY_MEMORY = 8 * PIECE_BYTES
"""Memory of copying an array in bytes: two pieces being read, one converted, the writer's, and some to spare."""
_COLUMNS = 1 << 18
"""Columns whose offsets are read together."""
_CHUNK_BYTES = 32 << 20


def append_array(file: FileWriter, array: AnyArray, limit: int | None = None) -> None:
    """Append an array; with a `limit`, its ids become int64, and those outside 0..limit - 1 are refused."""
    item = max(1, array.nbytes // max(1, array.shape[0]))
    for first, _, (part,) in chunks([array], max(1, PIECE_BYTES // item)):
        if limit is None:
            file.append(part)
        elif 0 <= part.min() <= part.max() < limit:
            file.append(part.astype(np.int64, copy=False))
        else:
            raise FormatError(
                f"{file.path.stem}: entry {first} or one behind it is no id: expected 0..{limit - 1}, found "
                f"{part.min()}..{part.max()}; the graph is damaged: run `tiering check --full` on it"
            )


def append_destinations(file: FileWriter, indptr: AnyArray) -> None:
    """Append the destination of every edge, int64, column after column."""
    step = PIECE_BYTES // 8
    for column in range(0, indptr.shape[0] - 1, _COLUMNS):
        bounds = np.array(indptr[column : column + _COLUMNS + 1])
        for first in range(int(bounds[0]), int(bounds[-1]), step):
            degrees = np.diff(np.clip(bounds, first, first + step))
            file.append(np.repeat(np.arange(column, column + degrees.size, dtype=np.int64), degrees))


def append_split(file: FileWriter, ids: AnyArray, values: AnyArray | None, threads: int) -> None:
    """Append the ids of a split, or `values` at these ids, as int64."""
    for first in range(0, ids.shape[0], PIECE_BYTES // 8):
        part = ids[first : first + PIECE_BYTES // 8]
        file.append((part if values is None else take(values, part, threads)).astype(np.int64, copy=False))


def row_sizes(table: RowTable) -> RowSizes:
    """Return the sizes of pieces in which rows are permuted: small tables need little memory."""
    return RowSizes(chunk=max(1, min(_CHUNK_BYTES, table.bytes)))


def streaming_memory(table: RowTable) -> int:
    """Return the memory of copying rows in the order in which they lie, in bytes."""
    step = max(1, PIECE_BYTES // max(1, table.row_bytes))
    pieces = table.pieces_memory(step) if isinstance(table, TierRows) else 2 * min(_CHUNK_BYTES, table.bytes)
    return pieces + appending_memory(table.bytes)


def permuting_memory(table: RowTable) -> int:
    """Return the memory of permuting rows in addition to what `tiering.reorder.rows` plans, in bytes."""
    pieces = table.pieces_memory(row_sizes(table).piece_rows(table)) if isinstance(table, TierRows) else 0
    return pieces + appending_memory(table.bytes)


def append_rows(
    file: FileWriter, source: ExportSource, node_type: str, scratch: Path, budget: Budget, threads: int, bar: Progress
) -> None:
    """Append the feature rows of a type in the order of the export, after the rows that the file has."""
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
    rest = budget.without(permuting_memory(table))
    with PermutedRows(
        table, forth, back, budget=rest, scratch=scratch, threads=threads, sizes=row_sizes(table)
    ) as permuted:
        for first, rows in permuted.chunks(start, table.rows):
            file.append(rows, first * table.row_bytes)
            bar.update(rows.nbytes)
