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
import xxhash

from tiering.artifacts.manifest import External
from tiering.datasets.import_context import ImportContext, chunks, one_line
from tiering.errors import InputError, TieringError
from tiering.formats.arrow import ArrowStream, name_type, pa

_BLOCK_ROWS = 1 << 16


@dataclass(frozen=True)
class StreamedTable:
    """The rows of an Arrow stream in a temporary file without a name."""

    source: ArrowStream
    schema: Any  # types as they are stored: see `_stored`
    rows: int
    file: External  # the name of the table for messages, and the temporary file's bytes and digest
    messages: npt.NDArray[np.uint8]  # of Arrow's IPC stream

    def batches(self) -> Iterator[Any]:
        """Return the blocks in order."""
        return iter(pa.ipc.open_stream(pa.py_buffer(self.messages)))


def add_stream(source: ArrowStream, owner: str, context: ImportContext) -> Path:
    """Store the table of a node type or relation, unless it is stored already; return its name in `context.streams`."""
    for path, known in context.streams.items():
        if known.source is source:
            return path
    name = f"{name_type(source)} of {owner}"
    if Path(name) in context.streams:
        name = f"{name} ({len(context.streams) + 1})"
    context.streams[Path(name)] = table = _store(source, name, context)
    return table.file.path


def _store(source: ArrowStream, name: str, context: ImportContext) -> StreamedTable:
    digest, rows, file = xxhash.xxh3_128(), 0, context.scratch.growing_file(np.uint8)

    def append(message: Any) -> None:
        digest.update(message)
        file.append(np.frombuffer(message, np.uint8))

    try:  # a reader of pyarrow's shows batches of other types, which its exported stream would reinterpret
        reader = source if isinstance(source, pa.RecordBatchReader) else pa.RecordBatchReader.from_stream(source)
        schema = pa.schema([(field.name, _stored(pa.nulls(0, field.type)).type) for field in reader.schema])
        if nested := [f"{field.name} ({field.type})" for field in schema if "dictionary<" in str(field.type)]:
            problem = f"dictionaries inside nested types are not supported, found {', '.join(nested)[:300]}"
            raise InputError(f"{name}: {problem}; convert these columns, or select other columns")
        append(schema.serialize())
        for batch in reader:
            if batch.schema.types != reader.schema.types:
                found = f"found {one_line(batch.schema)} from row {rows} on"
                raise InputError(f"{name}: expected columns {one_line(reader.schema)}, {found}; cast them alike")
            for part in chunks(batch.num_rows, _BLOCK_ROWS):
                block = pa.record_batch(list(map(_stored, batch[part].columns)), schema=schema)
                step = max(1, block.num_rows * context.scratch.text_block // max(1, block.nbytes))
                for piece in chunks(block.num_rows, step):
                    append(block[piece].serialize())
            rows += batch.num_rows
    except TieringError:
        raise
    except Exception as error:  # of any library
        problem = f"reading the Arrow table failed after {rows} rows: {one_line(error)}"
        raise InputError(f"{name}: {problem}; correct the table's source, and import it again") from error
    if not rows:
        raise InputError(f"{name}: the table has no rows; a reader or cursor is read only once: create a new one")
    stored = External(Path(name), file.count, f"xxh3-128:{digest.hexdigest()}")
    return StreamedTable(source, schema, rows, stored, file.finish())


def _stored(column: Any) -> Any:
    """Return a column as it is stored: a dictionary decoded, views as text. Cost: a pass over each dictionary."""
    if pa.types.is_dictionary(column.type):
        return _stored(column.dictionary).take(column.indices)
    return column.cast(pa.large_string()) if str(column.type) == "string_view" else column
