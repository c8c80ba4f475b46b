"""Format ``parquet``: edges as columns of one parquet file or of all those in a directory, streamed by row group.

Files of a directory are read in the order of their names: the order of edges over files is defined nowhere else.
Cost: one pass, 16 bytes of temporary disk per edge (24 with weights), memory for one row group.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pa_parquet

from tiering.errors import InputError
from tiering.formats.protocols import Dataset
from tiering.io.regular import entries, is_folder, is_there, require_file
from tiering.progress import progress
from tiering.sources.reading import Reading
from tiering.sources.tables import TableSink, choose_columns, one_line, require_once

SUFFIXES = (".parquet", ".pq")
_WHAT = "a parquet file of edges"


_DAMAGES = (pa.ArrowException, OSError, UnicodeDecodeError, MemoryError, OverflowError)
"""What a damaged file may come to: its numbers may ask for more memory than there is, its names may be no text."""


def parquet_files(path: Path) -> list[Path]:
    """The parquet files at `path`: itself, or those directly inside, by name."""
    if is_folder(path):
        named = [each for each in entries(path) if each.suffix.lower() in SUFFIXES]
        return [each for each in named if is_there(each, _WHAT)]
    return [path]


def open_parquet(path: Path, reading: Reading) -> Dataset:
    """Read edges from parquet.

    Raises
    ------
    MissingError
        If there is no file.
    InputError
        If a file is damaged, columns differ between files, or ids are null, negative, or no whole numbers.
    """
    files = parquet_files(path)
    for file in files or [path / "*.parquet"]:
        require_file(file, _WHAT)
    opened = [_open(file) for file in files]
    names = list(opened[0].schema_arrow.names)
    chosen = {name: names[i] for name, i in choose_columns(names, reading.options, str(files[0])).items()}
    reading.notes["columns"] = chosen
    sink = TableSink(reading.scratch, "weight" in chosen)
    total = sum(table.metadata.num_rows for table in opened)
    with progress(total, "reading edges", "edge", scale=True) as bar:
        for file, table in zip(files, opened, strict=True):
            reading.used(file)
            _check_columns(file, table.schema_arrow, chosen)
            for group in range(table.num_row_groups):
                bar.update(_read_group(file, table, group, chosen, sink))
            table.close()
    if path.is_dir():
        used = {file.name for file in files}
        reading.ignored(path, (each.name for each in entries(path) if each.name not in used))
    if sink.rows == 0:
        raise InputError(f"{path}: expected edges, found none in {', '.join(file.name for file in files[:8])}")
    return sink.finish(path, "parquet", reading)


def _open(file: Path) -> Any:
    try:
        return pa_parquet.ParquetFile(file, page_checksum_verification=True)
    except _DAMAGES as error:
        raise InputError(
            f"{file}: expected a parquet file, found it damaged ({one_line(error)}); get the file again"
        ) from error


def _check_columns(file: Path, schema: Any, chosen: dict[str, str]) -> None:
    for name, column in chosen.items():
        require_once(column, schema.names, str(file))
        if column not in schema.names:
            raise InputError(f"{file}: expected column {column} as in the first file, found {', '.join(schema.names)}")
        kind = schema.field(column).type
        if name == "weight":
            if not (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
                raise InputError(f"{file}: column {column}: expected numbers as weights, found {kind}; convert it")
        elif not pa.types.is_integer(kind):
            raise InputError(
                f"{file}: column {column}: expected ids as whole numbers, found {kind}; map the ids to numbers "
                "0, 1, 2... first, for example with pandas.factorize over both columns together, or name the id "
                "columns with --src-column and --dst-column"
            )


def _read_group(file: Path, table: Any, group: int, chosen: dict[str, str], sink: TableSink) -> int:
    """Give the columns of a row group to the sink; returns the number of rows."""
    expected = table.metadata.row_group(group).num_rows
    try:
        block = table.read_row_group(group, columns=list(chosen.values()))
        block.validate()
    except _DAMAGES as error:
        raise InputError(f"{file}: row group {group} is damaged ({one_line(error)}); get the file again") from error
    if block.num_rows != expected:
        raise InputError(f"{file}: row group {group}: expected {expected} rows, found {block.num_rows}; get it again")
    for name, column in chosen.items():
        values = block.column(column)
        if values.null_count:
            row = int(np.argmax(values.is_null().to_numpy()))
            raise InputError(
                f"{file}: column {column}: expected a number in each row, found {values.null_count} nulls in row group "
                f"{group}, the first at row {row} of the group; fill or remove these rows"
            )
        sink.append(name, _numbers(file, column, values.to_numpy(), name == "weight"), f"{file}: column {column}")
    return int(block.num_rows)


def _numbers(file: Path, column: str, values: npt.NDArray[Any], weight: bool) -> npt.NDArray[Any]:
    if weight:
        return values.astype(np.float64, copy=False)
    if values.dtype == np.uint64 and values.size and int(values.max()) >= 2**63:
        raise InputError(
            f"{file}: column {column}: expected ids below 2^63, found {int(values.max())}; map the ids to 0, 1, 2..."
        )
    return values.astype(np.int64, copy=False)
