"""Text and parquet files as tables: columns by name, in pieces of rows, converted to ids, numbers and classes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

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
        require_file(path, "a table")
        context.record_file(path)
        self._parquet = parquet.is_parquet(path)
        if self._parquet:
            with parquet.open_file(path) as file:
                self._schema = file.schema_arrow
            self.names = list(self._schema.names)
            return
        options = replace(context.options, string_ids=True, src_column=None, dst_column=None)

        def make(syntax: TextSyntax, fields: list[str]) -> tuple[ColumnParser, bool]:
            self.header = is_header(fields) if options.header is None else options.header
            self.names = fields if self.header else list(map(str, range(len(fields))))
            return ColumnParser(path, syntax, {}, len(fields), named=True), self.header

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

    def pieces(self, columns: Sequence[str]) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the number of a piece's first row, and its columns as pyarrow arrays."""
        positions = {name: find_once(name, self.names, str(self.path)) for name in columns if name != ROW}
        for row, rows, table in self._read_parquet(positions) if self._parquet else self._read_text(positions):
            yield row, {name: pa.array(range(row, row + rows)) if name == ROW else table[name] for name in columns}

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


def read_ids(array: Any, named: bool, where: str, row: int) -> Any:
    """Return ids as text, or int64; null where there is none."""
    text = _as_text(array)
    if text is None:
        whole = _convert(array, (pa.int64(),), "a whole number as id", where, row)
        return whole.cast(pa.string()) if named else whole
    if named:
        return text
    remedy = "correct it, or say --string-ids if ids are names"
    return _convert(pc.utf8_trim_whitespace(text), (pa.int64(),), "a whole number as id", where, row, remedy)


def read_numbers(array: Any, where: str, row: int) -> npt.NDArray[Any]:
    """Return numbers as int64, or float64 with NaN where there is none; times as seconds since 1970."""
    text = _as_text(array)
    if text is not None:
        array = _convert(
            pc.utf8_trim_whitespace(text), (pa.int64(), pa.float64(), *_TIMES), "a number or a time", where, row
        )
    if pa.types.is_temporal(array.type):
        array = array.cast(pa.timestamp("us")).cast(pa.timestamp("s"), safe=False).cast(pa.int64())
    elif pa.types.is_boolean(array.type):
        array = array.cast(pa.int8())
    kind = pa.int64() if pa.types.is_integer(array.type) and not array.null_count else pa.float64()
    values: npt.NDArray[Any] = _convert(array, (kind,), "numbers", where, row).to_numpy(zero_copy_only=False)
    return values


def _as_text(array: Any) -> Any:
    """Return an array of text without empty ones, which are null; ``None`` if it holds something else."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if not is_text(array.type):
        return None
    return pc.if_else(pc.equal(array, ""), pa.scalar(None, array.type), array)


def _convert(
    array: Any,
    kinds: Sequence[Any],
    wanted: str,
    where: str,
    row: int,
    remedy: str = "correct it, or name another column",
) -> Any:
    """Return an array as the first of some types that holds all values; names the first row that none holds."""
    problem = ""
    for kind in kinds:
        try:
            return array.cast(kind)
        except (pa.ArrowException, NotImplementedError) as error:
            problem = str(error)
    for k in range(len(array) if len(array) > 1 else 0):
        _convert(array[k : k + 1], kinds, wanted, where, row + k, remedy)
    found = quoted(str(array[0])) if len(array) == 1 else f"values of different kinds ({problem[:80]})"
    raise InputError(f"{where}: expected {wanted}, found {found} at row {row}; {remedy}")


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

    def append(self, array: Any, where: str) -> None:
        """Add values at the end; `InputError` if too many are distinct."""
        text = _as_text(array)
        encoded = (_as_text(array.cast(pa.string())) if text is None else text).dictionary_encode()
        distinct = encoded.dictionary.to_pylist()
        codes = [self._positions.setdefault(value, len(self._positions)) for value in distinct]
        if len(self._positions) > _MOST_CLASSES:
            problem = f"expected at most {_MOST_CLASSES} distinct {self._what}, found more"
            raise InputError(f"{where}: {problem}; name another column")
        self._codes.append(np.array([*codes, -1])[encoded.indices.fill_null(len(codes)).to_numpy()])

    def finish(self) -> tuple[npt.NDArray[np.int64], list[str]]:
        """Return the positions, mapped, and the values."""
        return self._codes.finish(), list(self._positions)
