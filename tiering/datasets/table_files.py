"""Text and parquet files as tables: columns by name, in pieces of rows, converted to ids, numbers and classes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tiering.artifacts.storage import require_file
from tiering.datasets.edge_sink import find_once
from tiering.datasets.import_context import ImportContext
from tiering.datasets.name_ids import is_text
from tiering.datasets.readers import edge_list, parquet
from tiering.datasets.scratch import Scratch, chunks
from tiering.datasets.table_specs import ROW
from tiering.datasets.text import ColumnParser, TextSyntax, read_blocks
from tiering.errors import InputError, quoted
from tiering.progress import note

_TIMES = (pa.timestamp("us"), pa.timestamp("us", "UTC"))
_WHOLE = re.compile(r"\s*[+-]?\d{1,18}\s*")
_MOST_CLASSES = 100_000


class TableFile:
    """A text or parquet file whose columns are read by name; columns of a text without header are ``0``, ``1``..."""

    def __init__(self, path: Path, context: ImportContext, is_header: Callable[[list[str]], bool]) -> None:
        """`is_header` says of the first line of a text whether it names columns, unless an option does."""
        self.path, self.names, self.header = path, [""], True
        self.is_sure = True  # whether a first line of data cannot be a header
        require_file(path, "a table")
        context.record_file(path)
        self._parquet = parquet.is_parquet(path)
        if self._parquet:
            with parquet.open_file(path) as file:
                self._schema = file.schema_arrow
            self.names = self.first = list(self._schema.names)
            return
        options = replace(context.options, string_ids=True, src_column=None, dst_column=None)

        def make(syntax: TextSyntax, first: list[str], second: list[str]) -> tuple[ColumnParser, bool]:
            numbers = [any(map(edge_list.NUMERIC.fullmatch, fields)) for fields in (first, second)]
            self.header = is_header(first) or numbers == [False, True] if options.header is None else options.header
            self.is_sure = self.header or numbers[0] or options.header is not None
            self.names, self.first = first if self.header else list(map(str, range(len(first)))), first
            return ColumnParser(path, syntax, {}, len(first), named=True), self.header

        self._start, self._parser = edge_list.find_start(path, options, make, narrow=True)

    def holds_names(self, column: str) -> bool:
        """Return whether ids in a column are text; of a text file its first row decides."""
        if column == ROW:
            return False
        if self._parquet:
            return is_text(self._schema.field(column).type)
        _, record = next(self._parser.syntax.records(self._start.raw, 0))
        fields = self._parser.syntax.fields(record)
        position = find_once(column, self.names, str(self.path))
        return position < len(fields) and _WHOLE.fullmatch(fields[position]) is None

    def pieces(self, columns: Sequence[str]) -> Iterator[tuple[int, int, dict[str, Any]]]:
        """Yield the number of a piece's first row, its rows, and its columns as pyarrow arrays."""
        positions = {name: find_once(name, self.names, str(self.path)) for name in columns if name != ROW}
        for row, rows, table in self._read_parquet(positions) if self._parquet else self._read_text(positions):
            yield (
                row,
                rows,
                {name: pa.array(range(row, row + rows)) if name == ROW else table[name] for name in columns},
            )

    def _read_parquet(self, positions: dict[str, int]) -> Iterator[tuple[int, int, dict[str, Any]]]:
        for row, batch in parquet.read_batches(self.path, list(positions)):
            yield row, batch.num_rows, {name: batch.column(name) for name in positions}

    def _read_text(self, positions: dict[str, int]) -> Iterator[tuple[int, int, dict[str, Any]]]:
        row, self._parser.columns = 0, {str(place): place for place in {*positions.values()} or {0}}
        for block in read_blocks(self.path, "reading tables", self._start, self._parser.syntax):
            if columns := self._parser.parse(block):
                arrays = {key: column.combine_chunks() for key, column in columns.items()}
                rows = len(next(iter(arrays.values())))
                yield row, rows, {name: arrays[str(place)] for name, place in positions.items()}
                row += rows
        if self._parser.comments:
            note(f"note: {self.path}: lines left out as comments: {self._parser.comments}")


class Column(NamedTuple):
    """A piece of a column, the number of its first row, and where it comes from, for messages."""

    name: str
    array: Any
    where: str
    row: int

    def refuse(self, wrong: Any, expected: str, remedy: str) -> None:
        """Raise an error that names the first row of a pyarrow mask, if it has one."""
        if count := wrong.true_count:
            row = self.row + pc.index(wrong, True).as_py()
            more = f" and {count - 1} more" if count > 1 else ""
            raise InputError(f"{self.where}: expected {expected}, found none at row {row}{more}; {remedy}")

    def text(self) -> Any:
        """Return the text without blanks around it, null where it is empty; ``None`` if the column is no text."""
        array = self.array.dictionary_decode() if pa.types.is_dictionary(self.array.type) else self.array
        if not is_text(array.type):
            return None
        array = pc.utf8_trim_whitespace(array)
        return pc.if_else(pc.equal(array, ""), pa.scalar(None, array.type), array)

    def convert(self, kinds: Sequence[Any], expected: str, remedy: str = "correct it, or name another column") -> Any:
        """Return the values as the first of some types that holds them all; an error names the first row without."""
        text, problem = self.text(), ""
        array = self.array if text is None else text
        for kind in kinds:
            try:
                return array.cast(kind)
            except (pa.ArrowException, NotImplementedError) as error:
                problem = str(error)
        for k in range(len(array) if len(array) > 1 else 0):
            self._replace(array=array[k : k + 1], row=self.row + k).convert(kinds, expected, remedy)
        found = quoted(str(array[0])) if len(array) == 1 else f"values of several kinds ({problem[:80]})"
        raise InputError(f"{self.where}: expected {expected}, found {found} at row {self.row}; {remedy}")


def read_ids(column: Column, named: bool) -> Any:
    """Return ids as text, or int64; null where there is none."""
    if named and (text := column.text()) is not None:
        return text
    remedy = "correct it, or say --string-ids if ids are names"
    whole = column.convert((pa.int64(),), "a whole number as id", remedy)
    return whole.cast(pa.string()) if named else whole


def read_numbers(column: Column) -> npt.NDArray[Any]:
    """Return numbers as int64, or float64 with NaN where there is none; times as seconds since 1970."""
    array = column.array
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.int8())
    elif not pa.types.is_integer(array.type):
        kinds = () if pa.types.is_temporal(array.type) else (pa.int64(), pa.float64())
        array = column.convert((*kinds, *_TIMES), "a number or a time")
    if pa.types.is_temporal(array.type):
        array = array.cast(pa.timestamp("s"), safe=False).cast(pa.int64())
    whole = pa.types.is_integer(array.type) and not array.null_count
    values: npt.NDArray[Any] = array.cast(pa.int64() if whole else pa.float64()).to_numpy(zero_copy_only=False)
    return values


def read_rows(column: Column) -> npt.NDArray[np.float64]:
    """Return a column of numbers, or of lists of one length, as (rows, values)."""
    if "list" not in str(column.array.type):
        return read_numbers(column).astype(np.float64)[:, None]
    lengths = pc.unique(pc.list_value_length(column.array)).to_pylist()
    if len(lengths) != 1 or not lengths[0]:
        problem = f"expected lists of one length, found lengths {lengths[:5]} from row {column.row} on"
        raise InputError(f"{column.where}: {problem}; pad them")
    values = read_numbers(column._replace(array=column.array.flatten()))
    return values.astype(np.float64).reshape(len(column.array), -1)


class NumberColumn:
    """A growing column of numbers: int64, and float64 once a value is no whole number."""

    def __init__(self, scratch: Scratch) -> None:
        self._scratch, self._file = scratch, scratch.growing_file(np.int64)

    def append(self, values: npt.NDArray[Any]) -> None:
        """Add values at the end."""
        if values.dtype.kind == "f" and self._file.dtype.kind == "i":
            whole, self._file = self._file.finish(), self._scratch.growing_file(np.float64)
            for part in chunks(whole.shape[0]):
                self._file.append(whole[part])
        self._file.append(values)

    def finish(self) -> npt.NDArray[Any]:
        """Return the column, mapped."""
        return self._file.finish()


class ClassColumn:
    """A growing column of few distinct values, as text: kept as positions among them, -1 for none."""

    def __init__(self, scratch: Scratch, what: str) -> None:
        self._codes, self._what = scratch.growing_file(np.int64), what
        self._positions: dict[str, int] = {}

    def append(self, column: Column) -> None:
        """Add values at the end; `InputError` if too many are distinct."""
        text = column.text()
        encoded = (column.convert((pa.string(),), "text or numbers") if text is None else text).dictionary_encode()
        distinct = encoded.dictionary.to_pylist()
        codes = [self._positions.setdefault(value, len(self._positions)) for value in distinct]
        if len(self._positions) > _MOST_CLASSES:
            problem = f"expected at most {_MOST_CLASSES} distinct {self._what}, found more"
            raise InputError(f"{column.where}: {problem}; name another column")
        self._codes.append(np.array([*codes, -1])[encoded.indices.fill_null(len(codes)).to_numpy()])

    def finish(self) -> tuple[npt.NDArray[np.int64], list[str]]:
        """Return the positions, mapped, and the values."""
        return self._codes.finish(), list(self._positions)
