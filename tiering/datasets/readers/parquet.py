"""Format ``parquet``: edges as columns of one parquet file or of all those in a directory, streamed by row group.

Files of a directory are read in the order of their names: the order of edges over files is defined nowhere else.
Columns of text are names (`tiering.datasets.name_ids`). Cost: one pass, 16 bytes of temporary disk per edge (24 with
weights), memory for a million rows; none of it where tasks read the files, by ranges of rows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from tiering.artifacts.regular import entries, file_exists, is_folder, require_file
from tiering.datasets.edge_sink import EdgeSink, describe_edges
from tiering.datasets.import_context import Detector, ImportContext, Reader
from tiering.datasets.name_ids import is_text
from tiering.datasets.options import COLUMN_OPTIONS
from tiering.datasets.parquet_columns import ParquetColumn, batches, largest_in_footers, numbers, open_parquet
from tiering.datasets.table_columns import choose_columns, require_once
from tiering.errors import InputError
from tiering.formats.dataset import Dataset
from tiering.formats.npy_file import read_start
from tiering.progress import progress

SUFFIXES = (".parquet", ".pq")
_WHAT = "a parquet file of edges"


def _files_inside(path: Path) -> list[Path]:
    """Return the parquet files directly inside, by name."""
    return [entry for entry in entries(path) if entry.suffix.lower() in SUFFIXES and file_exists(entry, _WHAT)]


def _open_parquet(path: Path, context: ImportContext) -> Dataset:
    folder = is_folder(path)
    files = _files_inside(path) if folder else [path]
    for file in files or [path / "*.parquet"]:
        require_file(file, _WHAT)
    chosen, rows, named = _describe(files, context)
    for file in files:
        context.record_file(file)
    if folder:
        context.record_ignored(entries(path))
    if sum(rows) == 0:
        raise InputError(f"{path}: expected edges, found none in {', '.join(file.name for file in files[:8])}")

    def read_all() -> EdgeSink:
        sink = EdgeSink(path, context, weighted="weight" in chosen, named=named)
        with progress(sum(rows), "reading edges", "edge", scale=True) as bar:
            for file in files:
                where = {content: f"{file}: column {column}" for content, column in chosen.items()}
                for _, batch in batches(file, list(chosen.values())):
                    columns = {content: batch.column(column) for content, column in chosen.items()}
                    for content in columns if not named else ["weight"] * ("weight" in columns):
                        columns[content] = numbers(columns[content], where[content], sink.rows, content)
                    sink.append(columns, where)
                    bar.update(batch.num_rows)
        return sink

    largest = largest_in_footers(files, chosen) if context.in_place and not named else None
    if largest is None:
        return read_all().finish()
    names = tuple(map(str, files))
    columns = {content: ParquetColumn(names, tuple(rows), column, content) for content, column in chosen.items()}
    dataset = describe_edges(path, columns, largest, context)
    dataset.edges[0].decode = lambda: read_all().finish_columns()
    return dataset


READER = Reader(
    _open_parquet,
    takes=COLUMN_OPTIONS,
    directory=Detector("*.parquet (parquet)", lambda path: bool(_files_inside(path))),
    file=Detector(
        f"parquet ({', '.join(SUFFIXES)})",
        lambda path: read_start(path, 4) == b"PAR1" or path.suffix.lower() in SUFFIXES,
    ),
)


def _describe(files: list[Path], context: ImportContext) -> tuple[dict[str, str], list[int], bool]:
    """Return the columns to read, checked in all files one by one, the rows of each, and whether ids are names."""
    chosen: dict[str, str] = {}
    rows, named = [], False
    for file in files:
        with open_parquet(file) as table:
            names = list(table.schema_arrow.names)
            if file == files[0]:
                chosen = {name: names[i] for name, i in choose_columns(names, context.options, str(file)).items()}
                first = chosen["src"]
                named = names.count(first) == 1 and is_text(table.schema_arrow.field(first).type)
            _check_columns(file, table.schema_arrow, chosen, named)
            rows.append(table.metadata.num_rows)
    context.notes["columns"] = chosen
    return chosen, rows, named


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
