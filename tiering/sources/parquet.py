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
from tiering.progress import progress
from tiering.sources.npy_file import require_file
from tiering.sources.reading import Reading
from tiering.sources.tables import TableSink, choose_columns

SUFFIXES = (".parquet", ".pq")


def parquet_files(path: Path) -> list[Path]:
    """The parquet files at `path`: itself, or those directly inside, by name."""
    if path.is_dir():
        return sorted(p for p in path.iterdir() if p.suffix in SUFFIXES and p.is_file())
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
        require_file(file, "a parquet file of edges")
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
                _read_group(file, table, group, chosen, sink)
                bar.update(table.metadata.row_group(group).num_rows)
            table.close()
    if sink.rows == 0:
        raise InputError(f"{path}: expected edges, found none in {len(files)} files; check the path")
    return sink.finish(path, "parquet", reading)


def _open(file: Path) -> Any:
    try:
        return pa_parquet.ParquetFile(file)
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"{file}: expected a parquet file, found it damaged ({error}); get the file again") from error


def _check_columns(file: Path, schema: Any, chosen: dict[str, str]) -> None:
    for name, column in chosen.items():
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


def _read_group(file: Path, table: Any, group: int, chosen: dict[str, str], sink: TableSink) -> None:
    try:
        block = table.read_row_group(group, columns=list(chosen.values()))
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"{file}: row group {group} is damaged ({error}); get the file again") from error
    for name, column in chosen.items():
        values = block.column(column)
        if values.null_count:
            row = int(np.argmax(values.is_null().to_numpy()))
            raise InputError(
                f"{file}: column {column}: {values.null_count} nulls in row group {group}, the first at row {row} of "
                "the group; fill or remove these rows"
            )
        sink.append(name, _numbers(file, column, values.to_numpy(), name == "weight"))


def _numbers(file: Path, column: str, values: npt.NDArray[Any], weight: bool) -> npt.NDArray[Any]:
    if weight:
        return values.astype(np.float64, copy=False)
    if values.dtype == np.uint64 and values.size and int(values.max()) >= 2**63:
        raise InputError(
            f"{file}: column {column}: expected ids below 2^63, found {int(values.max())}; map the ids to 0, 1, 2..."
        )
    return values.astype(np.int64, copy=False)
