"""Columns of numbers in parquet files: read front to back, or where they lie by ranges of rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pa_parquet

from tiering.datasets.edge_sink import DTYPES, ENDS, check_values
from tiering.datasets.edges import LargestId
from tiering.datasets.import_context import one_line
from tiering.datasets.scratch import CHUNK
from tiering.errors import InputError

BUFFER_BYTES = 1 << 20
DECODING_BYTES = 96 << 20
"""Memory of decoding in addition to the rows asked for: pages, dictionaries, a piece of `CHUNK` rows twice."""
_DAMAGES = (pa.ArrowException, OSError, UnicodeDecodeError, MemoryError, OverflowError)
"""Errors of a damaged file: its numbers may ask for more memory than there is, its names may be no text."""


@dataclass(frozen=True)
class ParquetColumn:
    """A column of the edges of a relation, in files that every machine sees under the same path.

    It stands for an array of shape (rows,) in `tiering.formats.dataset.EdgeData`; tasks read ranges of it.
    """

    files: tuple[str, ...]
    rows: tuple[int, ...]  # rows of each file
    column: str
    held: str  # content, see tiering.datasets.edge_sink.DTYPES

    ndim = 1
    read_memory = DECODING_BYTES

    @property
    def shape(self) -> tuple[int]:
        """Rows of all files together."""
        return (sum(self.rows),)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of values that `read` returns."""
        return np.dtype(DTYPES[self.held])

    def read(self, begin: int, end: int) -> npt.NDArray[Any]:
        """Return rows [begin, end), checked. Cost: row groups that begin earlier are decoded up to row `begin`."""
        values = np.empty(end - begin, self.dtype)
        for (first, last), name, rows in zip(
            pairwise(accumulate(self.rows, initial=0)), self.files, self.rows, strict=True
        ):
            if begin >= last or end <= first:
                continue
            for row, batch in batches(Path(name), [self.column], max(begin - first, 0), min(end, last) - first, rows):
                where = f"{name}: column {self.column}"
                part = numbers(batch.column(self.column), where, first + row, self.held)
                part = part.astype(self.dtype, copy=False)
                check_values(part, where, first + row, self.held)
                values[first + row - begin :][: part.size] = part
        return values

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON holds them."""
        fields = {**vars(self), "files": list(self.files), "rows": list(self.rows)}
        return {"class": "tiering.datasets.parquet_columns:ParquetColumn", **fields}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> ParquetColumn:
        """Return the object whose `to_json` gave `document`."""
        return cls(tuple(document["files"]), tuple(document["rows"]), document["column"], document["held"])


def open_parquet(file: Path) -> Any:
    """Open a Parquet file with checksums of pages; `InputError` if it is damaged."""
    try:
        return pa_parquet.ParquetFile(file, buffer_size=BUFFER_BYTES, page_checksum_verification=True)
    except _DAMAGES as error:
        raise InputError(
            f"{file}: expected a parquet file, found it damaged ({one_line(error)}); get the file again"
        ) from error


def batches(
    file: Path, columns: list[str], begin: int = 0, end: int | None = None, rows: int | None = None
) -> Iterator[tuple[int, Any]]:
    """Yield rows [begin, end) of a file, by default all, as first row and piece: a small file may hold any number.

    `rows`: number of rows of the file when it was described.
    """
    with open_parquet(file) as table:
        found = table.metadata.num_rows
        if rows not in (None, found):
            raise InputError(
                f"{file}: expected {rows} rows, as when it was opened, found {found}; run the import again"
            )
        end = found if end is None else end
        last = 0
        for group in range(table.num_row_groups):
            first, last = last, last + table.metadata.row_group(group).num_rows
            if last <= begin or first >= end:
                continue
            row = first
            try:
                for batch in table.iter_batches(CHUNK, row_groups=[group], columns=columns):
                    low, high = max(begin, row), min(end, row + batch.num_rows)
                    if low < high:
                        yield low, batch.slice(low - row, high - low)
                    row += batch.num_rows
                    if row >= end:
                        break
            except _DAMAGES as error:
                raise InputError(
                    f"{file}: row group {group} is damaged ({one_line(error)}); get the file again"
                ) from error
            if row < min(last, end) or row > last:
                raise InputError(
                    f"{file}: row group {group}: expected {last - first} rows, found {row - first}; get the file again"
                )


def numbers(column: Any, where: str, first: int, held: str) -> npt.NDArray[Any]:
    """Return the values of a piece of a column, of which the first has number `first`; `where` is for messages."""
    if column.null_count:
        row = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
        raise InputError(f"{where}: expected a number in each row, found null at edge {first + row}; fill or remove it")
    values: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    if held != "weight" and values.dtype == np.uint64 and int(values.max(initial=0)) >= 2**63:
        raise InputError(f"{where}: expected ids below 2^63, found {int(values.max())}; map the ids to 0, 1, 2...")
    return values


def largest_in_footers(files: Sequence[Path], columns: Mapping[str, str]) -> LargestId | None:
    """Return the largest id of both ends by the files' footers; ``None`` if they do not state it. Cost: the footers."""
    largest = LargestId()
    for file in files:
        with open_parquet(file) as table:
            groups = [table.metadata.row_group(group) for group in range(table.num_row_groups)]
        for group, described in enumerate(groups):
            own = {(chunk := described.column(at)).path_in_schema: chunk for at in range(described.num_columns)}
            for content, end in ENDS.items() if described.num_rows else ():
                column = own.get(columns[content])
                known = None if column is None else column.statistics
                if known is None or not known.has_min_max or not known.has_null_count or known.null_count:
                    return None
                if known.min < 0 or known.max >= 2**63:
                    return None
                place = f"{file}: row group {group}: {end} id {known.max}"
                largest = max(largest, LargestId(int(known.max), place), key=lambda one: one.id)
    return largest
