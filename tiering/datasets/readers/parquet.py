"""Format ``parquet``: edges as columns of one parquet file or of all those in a directory, streamed by row group.

Files of a directory are read in the order of their names: the order of edges over files is defined nowhere else.
Columns of text are names (`tiering.datasets.name_ids`). Cost: one pass, 16 bytes of temporary disk per edge (24 with
weights), memory for a million rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pa_parquet

from tiering.artifacts.regular import entries, is_folder, is_there, require_file
from tiering.datasets.name_ids import NameSink, is_text
from tiering.datasets.options import COLUMN_OPTIONS
from tiering.datasets.reader import Reader, Reading, Sign
from tiering.datasets.scratch import CHUNK
from tiering.datasets.tables import TableSink, choose_columns, one_line, require_once
from tiering.errors import InputError
from tiering.formats.npy_file import read_start
from tiering.formats.protocols import Dataset
from tiering.progress import progress

SUFFIXES = (".parquet", ".pq")
BUFFER_BYTES = 1 << 20
_WHAT = "a parquet file of edges"
_DAMAGES = (pa.ArrowException, OSError, UnicodeDecodeError, MemoryError, OverflowError)
"""What a damaged file may come to: its numbers may ask for more memory than there is, its names may be no text."""


def _files_inside(path: Path) -> list[Path]:
    """The parquet files directly inside, by name."""
    return [entry for entry in entries(path) if entry.suffix.lower() in SUFFIXES and is_there(entry, _WHAT)]


def _open_parquet(path: Path, reading: Reading) -> Dataset:
    folder = is_folder(path)
    files = _files_inside(path) if folder else [path]
    for file in files or [path / "*.parquet"]:
        require_file(file, _WHAT)
    chosen, total, named = _describe(files, reading)
    sink = (NameSink if named else TableSink)(reading.scratch, "weight" in chosen)
    with progress(total, "reading edges", "edge", scale=True) as bar:
        for file in files:
            reading.used(file)
            for batch in _batches(file, list(chosen.values())):
                for name, column in chosen.items():
                    where = f"{file}: column {column}"
                    values = batch.column(column)
                    if name == "weight" or not named:
                        values = _numbers(values, where, sink.rows(name), name)
                    sink.append(name, values, where)
                bar.update(batch.num_rows)
    if folder:
        reading.ignored(entries(path))
    if sink.rows() == 0:
        raise InputError(f"{path}: expected edges, found none in {', '.join(file.name for file in files[:8])}")
    return sink.finish(path, reading)


READER = Reader(
    _open_parquet,
    takes=COLUMN_OPTIONS,
    directory=Sign("*.parquet (parquet)", lambda path: bool(_files_inside(path))),
    file=Sign(
        f"parquet ({', '.join(SUFFIXES)})",
        lambda path: read_start(path, 4) == b"PAR1" or path.suffix.lower() in SUFFIXES,
    ),
)


def _describe(files: list[Path], reading: Reading) -> tuple[dict[str, str], int, bool]:
    """The columns to read, checked in all files, the number of rows, and whether ids are names; one file is open at a
    time.
    """
    chosen: dict[str, str] = {}
    total, named = 0, False
    for file in files:
        with _open(file) as table:
            names = list(table.schema_arrow.names)
            if file == files[0]:
                chosen = {name: names[i] for name, i in choose_columns(names, reading.options, str(file)).items()}
                first = chosen["src"]
                named = names.count(first) == 1 and is_text(table.schema_arrow.field(first).type)
            _check_columns(file, table.schema_arrow, chosen, named)
            total += table.metadata.num_rows
    reading.notes["columns"] = chosen
    return chosen, total, named


def _open(file: Path) -> Any:
    try:
        return pa_parquet.ParquetFile(file, buffer_size=BUFFER_BYTES, page_checksum_verification=True)
    except _DAMAGES as error:
        raise InputError(
            f"{file}: expected a parquet file, found it damaged ({one_line(error)}); get the file again"
        ) from error


def _check_columns(file: Path, schema: Any, chosen: dict[str, str], named: bool) -> None:
    for name, column in chosen.items():
        require_once(column, schema.names, str(file))
        if column not in schema.names:
            raise InputError(f"{file}: expected column {column} as in the first file, found {', '.join(schema.names)}")
        kind = schema.field(column).type
        if name == "weight":
            if not (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
                raise InputError(f"{file}: column {column}: expected numbers as weights, found {kind}; convert it")
        elif not (is_text(kind) if named else pa.types.is_integer(kind)):
            wanted = (
                f"names, as those of {chosen['src']} ({schema.field(chosen['src']).type})"
                if named
                else "whole numbers, or names in both columns"
            )
            raise InputError(
                f"{file}: column {column}: expected ids as {wanted}, found {kind}; convert it, or name the id columns "
                "with --src-column and --dst-column"
            )


def _batches(file: Path, columns: list[str]) -> Iterator[Any]:
    """A file in pieces of its row groups: a small file may hold any number of rows."""
    with _open(file) as table:
        for group in range(table.num_row_groups):
            rows = 0
            try:
                for batch in table.iter_batches(CHUNK, row_groups=[group], columns=columns):
                    rows += batch.num_rows
                    yield batch
            except _DAMAGES as error:
                raise InputError(
                    f"{file}: row group {group} is damaged ({one_line(error)}); get the file again"
                ) from error
            expected = table.metadata.row_group(group).num_rows
            if rows != expected:
                raise InputError(
                    f"{file}: row group {group}: expected {expected} rows, found {rows}; get the file again"
                )


def _numbers(column: Any, where: str, first: int, name: str) -> npt.NDArray[Any]:
    if column.null_count:
        row = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
        raise InputError(f"{where}: expected a number in each row, found null at edge {first + row}; fill or remove it")
    values: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    if name != "weight" and values.dtype == np.uint64 and int(values.max(initial=0)) >= 2**63:
        raise InputError(f"{where}: expected ids below 2^63, found {int(values.max())}; map the ids to 0, 1, 2...")
    return values
