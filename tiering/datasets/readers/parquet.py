"""Format ``parquet``: edges as columns of one parquet file or of a directory's files by name, streamed by row group.

Cost: one pass, 16 bytes of temporary disk per edge (24 with weights); none where tasks read ranges of the files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.artifacts.remote_path import RANGE_BYTES, RemotePath, as_path
from tiering.artifacts.storage import entries, file_exists, is_folder, require_file
from tiering.datasets import edge_sink
from tiering.datasets.edge_sink import DTYPES, EdgeSink, check_values
from tiering.datasets.edges import LargestId
from tiering.datasets.import_context import CHUNK, Detector, ImportContext, Reader, one_line
from tiering.datasets.name_ids import OtherIdsError, is_text, whole_ids
from tiering.datasets.options import COLUMN_OPTIONS, RAW_OPTIONS
from tiering.datasets.unread import refuse_table_formats
from tiering.errors import InputError, TieringError
from tiering.formats.arrow import pa, pa_parquet, pc
from tiering.formats.dataset import Dataset
from tiering.formats.npy_file import read_start
from tiering.text.progress import progress

SUFFIXES = (".parquet", ".pq")
BUFFER_BYTES = 1 << 20
DECODING_BYTES = 96 << 20  # memory of decoding: pages, dictionaries, a piece of CHUNK rows twice
_WHAT = "a parquet file of edges"
# A damaged file's numbers may ask for more memory than there is, its names may be no text.
_DAMAGES = (OSError, UnicodeDecodeError, MemoryError, OverflowError)


def files_inside(path: Path) -> list[Path]:
    """Return the files of a directory; where there are none, files of partitions (``key=value``) or of ``data``."""
    visible = [entry for entry in entries(path) if not entry.name.startswith((".", "_"))]
    files = [entry for entry in visible if entry.suffix.lower() in SUFFIXES and file_exists(entry, _WHAT)]
    inner = [entry for entry in visible if entry.is_dir() and ("=" in entry.name or entry.name == "data")]
    return files or [file for folder in inner for file in files_inside(folder)]


def _open_parquet(path: Path, context: ImportContext) -> Dataset:
    folder = is_folder(path)
    files = files_inside(path) if folder else [path]
    refuse_table_formats(files if folder else ())
    for file in files or [path / "*.parquet"]:
        require_file(file, _WHAT)
    chosen, rows, named = _describe(files, context)
    for file in files:
        context.record_file(file)
        context.known.update(file.parents)
    context.folder = path if folder else None
    keys = {part.partition("=")[0]: None for file in files for part in file.relative_to(path).parts[:-1] if "=" in part}
    if unread := [*context.notes.get("ignored_columns", []), *keys]:
        context.notes["ignored_columns"] = unread
    if sum(rows) == 0:
        raise InputError(f"{path}: there are no edges in {', '.join(file.name for file in files[:8])}")

    dense = context.options.compact_ids

    def read_all() -> EdgeSink:
        sink = EdgeSink(path, context, weighted="weight" in chosen, named=named)
        with progress(sum(rows), "reading edges", "edge", scale=True) as bar:
            for file in files:
                where = {content: f"{file}: column {column}" for content, column in chosen.items()}
                for _, batch in read_batches(file, list(chosen.values())):
                    columns = {content: batch.column(column) for content, column in chosen.items()}
                    for content in [name for name in columns if name == "weight" or not named]:
                        columns[content] = _numbers(columns[content], where[content], sink.rows, content, dense)
                    sink.append(columns, where)
                    bar.update(batch.num_rows)
        return sink

    largest = _largest_in_footers(files, chosen) if context.in_place and not named else None
    if largest is None:
        return read_all().finish()
    names = tuple(map(str, files))
    columns = {content: ParquetColumn(names, tuple(rows), column, content) for content, column in chosen.items()}
    dataset = edge_sink.describe_edges(path, columns, largest, context)
    dataset.edges[0].decode = lambda: read_all().finish_columns()
    return dataset


READER = Reader(
    _open_parquet,
    takes=COLUMN_OPTIONS | RAW_OPTIONS,
    directory=Detector("*.parquet (parquet)", lambda path: bool(files_inside(path))),
    file=Detector(f"parquet ({', '.join(SUFFIXES)})", lambda path: is_parquet(path)),
)


def is_parquet(path: Path) -> bool:
    """Return whether a file is parquet, by its first bytes or its name."""
    return read_start(path, 4) == b"PAR1" or path.suffix.lower() in SUFFIXES


def _describe(files: list[Path], context: ImportContext) -> tuple[dict[str, str], list[int], bool]:
    """Return the columns to read, checked in all files one by one, the rows of each, and whether ids are names."""
    chosen: dict[str, str] = {}
    rows, named = [], False
    for file in files:
        with open_file(file) as table:
            names = list(table.schema_arrow.names)
            if file == files[0]:
                chosen = {
                    name: names[i] for name, i in edge_sink.choose_columns(names, context.options, str(file)).items()
                }
                first = chosen["src"]
                named = names.count(first) == 1 and is_text(table.schema_arrow.field(first).type)
            schema = table.schema_arrow
            rows.append(table.metadata.num_rows)
        for name, column in chosen.items():
            if column not in schema.names:
                listed = ", ".join(schema.names)
                raise InputError(f"{file}: expected column {column} as in the first file, found {listed}")
            edge_sink.find_once(column, schema.names, str(file))
            kind = schema.field(column).type
            if name == "weight" and not (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
                raise InputError(f"{file}: column {column}: expected numbers as weights, found {kind}; convert it")
            whole = pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0)
            if name != "weight" and not (is_text(kind) if named else whole):
                alike = f"names, as in {chosen['src']} ({schema.field(chosen['src']).type})"
                wanted = alike if named else "whole numbers, or names in both columns"
                raise InputError(
                    f"{file}: column {column}: expected ids as {wanted}, found {kind}; convert it, or name the id "
                    "columns with --src-column and --dst-column"
                )
    context.notes["columns"] = chosen
    if unused := [name for name in names if name not in chosen.values()]:
        context.notes["ignored_columns"] = unused
    return chosen, rows, named


@dataclass(frozen=True)
class ParquetColumn:
    """A column of edges in files that every machine sees; tasks read ranges of it as from an array."""

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
        for last, name, rows in zip(accumulate(self.rows), self.files, self.rows, strict=True):
            first = last - rows
            if begin >= last or end <= first:
                continue
            for row, batch in read_batches(
                as_path(name), [self.column], max(begin - first, 0), min(end, last) - first, rows
            ):
                where = f"{name}: column {self.column}"
                part = _numbers(batch.column(self.column), where, first + row, self.held).astype(self.dtype, copy=False)
                check_values(part, where, first + row, self.held)
                values[first + row - begin :][: part.size] = part
        return values


def open_file(file: Path) -> Any:
    """Return the file, open; `InputError` if it is damaged."""
    source, buffer = (file.open("rb", 0), RANGE_BYTES) if isinstance(file, RemotePath) else (file, BUFFER_BYTES)
    try:
        return pa_parquet.ParquetFile(source, buffer_size=buffer, page_checksum_verification=True)
    except TieringError:
        raise
    except (pa.ArrowException, *_DAMAGES) as error:
        what = f"the parquet file is damaged ({one_line(error)})"
        raise InputError(f"{file}: {what}; get the file again") from error


def read_batches(
    file: Path, columns: list[str], begin: int = 0, end: int | None = None, rows: int | None = None
) -> Iterator[tuple[int, Any]]:
    """Yield rows [begin, end), by default all, as first row and piece; `rows`: of the file when it was described."""
    with open_file(file) as table:
        found = table.metadata.num_rows
        if rows not in (None, found):
            what = f"expected {rows} rows, as when the file was opened, found {found}"
            raise InputError(f"{file}: {what}; run the import again")
        end, last = found if end is None else end, 0
        for group in range(table.num_row_groups):
            first, last = last, last + table.metadata.row_group(group).num_rows
            if last <= begin or first >= end:
                continue
            row, described = first, table.metadata.row_group(group)
            parts = [described.column(at) for at in range(described.num_columns)]
            values = sum(p.num_values for p in parts if p.path_in_schema.startswith(tuple(columns)))
            step = max(1, CHUNK * (last - first) // max(1, values))
            try:
                for batch in table.iter_batches(step, row_groups=[group], columns=columns):
                    low, high = max(begin, row), min(end, row + batch.num_rows)
                    if low < high:
                        yield low, batch.slice(low - row, high - low)
                    row += batch.num_rows
                    if row >= end:
                        break
            except TieringError:
                raise
            except (pa.ArrowException, *_DAMAGES) as error:
                damage = f"row group {group} is damaged ({one_line(error)})"
                raise InputError(f"{file}: {damage}; get the file again") from error
            if row < min(last, end) or row > last:
                damage = f"row group {group}: expected {last - first} rows, found {row - first}"
                raise InputError(f"{file}: {damage}; get the file again")


def _numbers(column: Any, where: str, first: int, held: str, dense: bool = False) -> npt.NDArray[Any]:
    """Return the values of a piece of a column from number `first` on; `OtherIdsError` if `dense` ids are no int64."""
    if column.null_count:
        row = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
        raise InputError(f"{where}: expected a number in each row, found null at edge {first + row}; fill or remove it")
    try:
        column = column if held == "weight" else whole_ids(column, pa.int64())
    except OtherIdsError:
        if dense:
            raise
        found = f"found {max(pc.min_max(column).as_py().values(), key=abs)}"
        raise InputError(f"{where}: expected ids below 2^63, {found}; make ids dense with --compact-ids") from None
    values: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return values


def _largest_in_footers(files: Sequence[Path], columns: Mapping[str, str]) -> LargestId | None:
    """Return the largest id of both ends by the files' footers; ``None`` if they do not state it. Cost: the footers."""
    largest = LargestId()
    for file in files:
        with open_file(file) as table:
            groups = [table.metadata.row_group(group) for group in range(table.num_row_groups)]
        for number, group in enumerate(groups):
            chunks = {(chunk := group.column(at)).path_in_schema: chunk for at in range(group.num_columns)}
            for content, end in edge_sink.ENDS.items() if group.num_rows else ():
                known = chunks[columns[content]].statistics if columns[content] in chunks else None
                if known is None or not known.has_min_max or not known.has_null_count or known.null_count:
                    return None
                if known.min < 0 or known.max >= 2**63:
                    return None
                place = f"{file}: row group {number}: {end} id {known.max}"
                largest = largest.merge(LargestId(int(known.max), place, int(known.min)))
    return largest
