"""Write features that Python computes, block by block, as the numpy file that ``import`` reads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from tiering.artifacts.atomic import OutputFile
from tiering.artifacts.file_writer import FileWriter
from tiering.artifacts.storage import require_space
from tiering.errors import InputError
from tiering.formats.arrow import as_array
from tiering.formats.features import FEATURE_DTYPES
from tiering.formats.npy_file import npy_header
from tiering.text.progress import progress

DTYPES = ", ".join(dtype for dtype in FEATURE_DTYPES if dtype != "bfloat16")  # which numpy files have
FORM = "form"  # key of the journal: dtype and width of the table


def write_features(
    blocks: Iterable[Any] | Callable[[int], Iterable[Any]] | Any, out: str | os.PathLike[str], *,
    rows: int | None = None, column: str | None = None, force: bool = False,
) -> Path:  # fmt: skip
    """Write blocks of feature rows, such as a text encoder's batches, as one ``.npy`` file of shape (rows, dim).

    Parameters
    ----------
    blocks
        Arrays or tensors of shape (n, dim), in the order of the nodes, all of one width and dtype; or a stream of Arrow
        (an object with ``__arrow_c_stream__``) with a column of fixed-size lists. Or a function ``blocks(start_row)``
        that returns one of these from row `start_row` on: a stopped run is resumed there. Other blocks come from the
        beginning again, and rows that are written already are skipped.
    out
        The file to write, ``NAME.npy``, such as ``node_feat.npy`` next to the edges of a dataset.
    rows
        Number of rows in all: the number of nodes. Optional for a table of Arrow, which knows it.
    column
        Column of the stream; optional where exactly one has fixed-size lists.
    force
        Whether to replace the file `out`, and to start over where a run was stopped.

    Returns
    -------
    The path of the file, which appears when all rows are there.

    Raises
    ------
    InputError, ExistsError, StorageError
        If a block has another width or dtype, or a dtype that ``import`` does not read; there are more or fewer rows
        than `rows`; `out` is there; the disk is full. Values are not checked: NaN is allowed.

    Notes
    -----
    Finished pieces of 64 MiB are kept whatever ends the run: an error of the encoder, Ctrl-C, a kill. Cost: every row
    is written once; memory of a block and 32 MiB.
    """
    rows = getattr(blocks, "num_rows", None) if rows is None else rows
    if isinstance(rows, bool) or not isinstance(rows, (int, np.integer)) or rows < 1:
        raise InputError(f"rows: expected the number of rows of all blocks, at least 1, found {rows!r}; give rows=N")
    if Path(out).suffix != ".npy":
        raise InputError(f"out: expected a file NAME.npy, which import reads, found {os.fspath(out)!r}; rename it")
    output = OutputFile(out, force=force, identity={"stage": "features", "options": {"rows": int(rows)}})
    with output:
        try:
            _write_blocks(output, blocks, int(rows), column, force)
        except BaseException:
            if output.journal.keys("blocks "):
                output.suspend()
            raise
        output.commit_file()
    return output.out


def _write_blocks(output: OutputFile, blocks: Any, rows: int, column: str | None, force: bool) -> None:
    """Write the rows that are missing in ``output.content``."""
    journal, at = output.journal, 0
    if force:
        journal.forget(*journal.keys())
    form = journal.get(FORM) or {}

    def open_file(dtype: str, dim: int) -> FileWriter:
        nbytes = rows * dim * np.dtype(dtype).itemsize
        return FileWriter(output.content, nbytes, journal, header=npy_header(dtype, (rows, dim)))

    with ExitStack() as stack, progress(rows, "features", "row", scale=True) as bar:
        file = stack.enter_context(open_file(**form)) if form else None
        if callable(blocks):
            at = 0 if file is None else file.done * rows // file.nbytes
            blocks = blocks(at)
        for block in _arrays(blocks, column):
            found = {"dtype": block.dtype.name, "dim": block.shape[1]}
            if file is None:
                require_space({output.path: rows * block.dtype.itemsize * block.shape[1]})
                journal.record(FORM, **found)
                form, file = found, stack.enter_context(open_file(**found))
            if found != form:
                raise InputError(
                    f"blocks: row {at}: expected rows of {form['dim']} x {form['dtype']} as the first ones, found "
                    f"{found['dim']} x {found['dtype']}; give all blocks one shape, or force=True to start over"
                )
            if at + len(block) > rows:
                raise InputError(f"blocks: expected {rows} rows, found {at + len(block)} or more; correct rows=")
            file.append(block, at * file.nbytes // rows)
            at += len(block)
            bar.update(at - bar.n)
    if at != rows:
        raise InputError(f"blocks: expected {rows} rows, found {at}; correct rows=, or give the missing blocks")


def _arrays(blocks: Any, column: str | None) -> Iterator[np.ndarray[Any, Any]]:
    """Yield blocks as arrays of two dimensions in the machine's byte order; `InputError` for what is none."""
    for block in _vectors(blocks, column) if hasattr(blocks, "__arrow_c_stream__") else blocks:
        try:
            array = as_array(block, "block")
            kind = f"{array.dtype} of shape {array.shape}"
        except InputError as error:  # bfloat16 of torch; lists of unequal lengths
            array, kind = np.empty(0), f"{getattr(block, 'dtype', type(block).__name__)} ({error})"
        if array.ndim != 2 or not array.shape[1] or array.dtype.name not in FEATURE_DTYPES:
            raise InputError(f"blocks: expected arrays of shape (n, dim) of {DTYPES}, found {kind}; convert them")
        yield array.astype(array.dtype.newbyteorder("="), copy=False)


def _vectors(stream: Any, column: str | None) -> Iterator[np.ndarray[Any, Any]]:
    """Yield the fixed-size lists of a column of an Arrow stream as arrays of shape (n, size), batch by batch."""
    import pyarrow as pa

    reader = pa.RecordBatchReader.from_stream(stream)
    known = [field.name for field in reader.schema if pa.types.is_fixed_size_list(field.type)]
    if column not in known and (column is not None or len(known) != 1):
        raise InputError(
            f"column: expected {'a column' if column is None else repr(column)} of fixed-size lists, found "
            f"{', '.join(known) or 'none'} among {', '.join(reader.schema.names)}; name one, or cast the column"
        )
    for batch in reader:
        lists = batch.column(column or known[0])
        numbers = lists.flatten()
        if lists.null_count or numbers.null_count:
            raise InputError(f"column: expected numbers in every row of {column or known[0]!r}, found nulls; fill them")
        yield numbers.to_numpy(zero_copy_only=False).reshape(len(lists), lists.type.list_size)
