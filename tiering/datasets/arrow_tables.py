"""Tables that come as Arrow streams: each is read once, block by block, into a temporary file that imports read.

Cost: all columns are written and read again. Memory: a batch as the library makes it, and a block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from tiering.artifacts.manifest import External
from tiering.datasets.import_context import ImportContext, chunks, one_line
from tiering.errors import InputError, TieringError
from tiering.formats.arrow import ArrowStream, name_type

_BLOCK_ROWS = 1 << 16


@dataclass(frozen=True)
class StreamedTable:
    """The rows of an Arrow stream in a temporary file without a name."""

    source: ArrowStream
    schema: Any  # types as they are stored: see `_stored_type`
    rows: int
    file: External  # the name of the table for messages, and the temporary file's bytes and digest
    messages: npt.NDArray[np.uint8]  # of Arrow's IPC stream

    def read_batches(self) -> Iterator[tuple[int, Any]]:
        """Yield the first row of each block, and the block."""
        first = 0
        for batch in pa.ipc.open_stream(pa.py_buffer(self.messages)):
            yield first, batch
            first += batch.num_rows


def add_stream(source: ArrowStream, owner: str, context: ImportContext) -> Path:
    """Store the table of a node type or relation, unless it is stored already; return its name in `context.streams`."""
    for path, known in context.streams.items():
        if known.source is source:
            return path
    name = f"{name_type(source)} of {owner}"
    if number := sum(str(path).startswith(name) for path in context.streams):
        name = f"{name} ({number + 1})"
    context.streams[Path(name)] = table = _store(source, name, context)
    return table.file.path


def _store(source: ArrowStream, name: str, context: ImportContext) -> StreamedTable:
    try:  # a reader of pyarrow's shows batches of other types, which its exported stream would reinterpret
        reader = source if isinstance(source, pa.RecordBatchReader) else pa.RecordBatchReader.from_stream(source)
    except Exception as error:  # of any library
        raise InputError(f"{name}: expected an Arrow table, but it raised: {one_line(error)}; correct it") from error
    schema = pa.schema([(field.name, _stored_type(field.type)) for field in reader.schema])
    if nested := [f"{field.name} ({field.type})" for field in schema if "dictionary<" in str(field.type)]:
        problem = f"dictionaries inside other types are not read, found {', '.join(nested)[:300]}"
        raise InputError(f"{name}: {problem}; convert these columns, or select others")
    digest, rows, file = xxhash.xxh3_128(), 0, context.scratch.growing_file(np.uint8)

    def append(message: Any) -> None:
        digest.update(message)
        file.append(np.frombuffer(message, np.uint8))

    append(schema.serialize())
    try:
        for batch in reader:
            if batch.schema.types != reader.schema.types:
                found = f"found {_types(batch.schema)} from row {rows} on"
                raise InputError(f"{name}: expected columns {_types(reader.schema)}, {found}; cast all rows alike")
            for part in chunks(batch.num_rows, _BLOCK_ROWS):
                block = pa.record_batch(list(map(_stored, batch[part].columns)), schema=schema)
                step = max(1, block.num_rows * context.scratch.text_block // max(1, block.nbytes))
                for piece in chunks(block.num_rows, step):
                    append(block[piece].serialize())
            rows += batch.num_rows
    except TieringError:
        raise
    except Exception as error:  # of any library
        problem = f"the stream ended in an error after {rows} rows: {one_line(error)}"
        raise InputError(f"{name}: {problem}; correct its source, and import it again") from error
    if not rows:
        raise InputError(f"{name}: expected rows, found none; a reader or cursor gives its rows once: make a new one")
    stored = External(Path(name), file.count, f"xxh3-128:{digest.hexdigest()}")
    return StreamedTable(source, schema, rows, stored, file.finish())


def _stored_type(kind: Any) -> Any:
    """Return the type that a column is stored as: text as a view or dictionary is plain text."""
    if pa.types.is_dictionary(kind):
        return _stored_type(kind.value_type)
    return pa.large_string() if str(kind) == "string_view" else kind


def _stored(column: Any) -> Any:
    """Return a column as its `_stored_type`. Cost: of a dictionary, a look at all its values."""
    if pa.types.is_dictionary(column.type):
        return _stored(column.dictionary).take(column.indices)
    return column.cast(_stored_type(column.type))


def _types(schema: Any) -> str:
    return ", ".join(f"{field.name} ({field.type})" for field in schema)[:300]
