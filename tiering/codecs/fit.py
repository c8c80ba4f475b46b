"""The table of codecs, and the pass over a table's rows that finds the parameters of one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.codecs.codec import DELIVERED, NOT_FINITE, Codec, ColumnFacts, FloatRows
from tiering.codecs.floats import BFloat16, Float8, Float16, Float32
from tiering.codecs.int8 import Int8
from tiering.errors import InputError

CODECS: dict[str, type[Codec]] = {codec.name: codec for codec in (Float32, Float16, BFloat16, Float8, Int8)}
AUTO = "auto"
"""The choice without loss: ``float16`` where every value of a ``float32`` table is one, else what the table has."""
_WHOLE = 2**24  # up to which every whole number is a float32


def codec_of(entry: Mapping[str, Any], dim: int, parameters: bytes, where: str) -> Codec:
    """Return the codec of a manifest's entry and file of parameters, `where` in messages."""
    codec = CODECS[entry["name"]].from_bytes(parameters, dim, where)
    codec.largest = entry["largest"]
    return codec


def fit_codec(
    name: str, blocks: Iterable[npt.NDArray[Any]], dim: int, dtype: str, where: str, threads: int = 1
) -> Codec:
    """Return the codec `name` of `CODECS` for the rows of a table, which pass once, in blocks as `dtype` is stored.

    No block is read where the codec needs none. `InputError` names the table, by `where`, with row and column of
    the first value that the codec cannot hold.
    """
    return codec_for(name, [column_facts(name, blocks, dim, dtype, where, threads)])


def column_facts(
    name: str, blocks: Iterable[npt.NDArray[Any]], dim: int, dtype: str, where: str, threads: int = 1, first: int = 0
) -> ColumnFacts:
    """Return the facts that `codec_for` needs, about rows from number `first` on; errors: see `fit_codec`."""
    kind, columns = CODECS[name], native.ColumnFit(dim)
    for block in blocks if reads_rows(name, dtype) else ():
        before = columns.num_rows
        rows = float_rows(block, dtype, where, first + before)
        columns.add(rows, threads)
        for number, holders in kind.refused.items():
            row, column = columns.odd[number]
            if row >= 0:
                value = rows[row - before, column]
                raise InputError(
                    f"{where}: row {first + row}, column {column} is {value:g}, which {name} cannot store; store the "
                    f"table as {holders}, or change the value"
                )
    return ColumnFacts(
        columns.num_rows, columns.odd[NOT_FINITE][0] >= 0, columns.low, columns.high, columns.least, columns.lowest_bit
    )


def codec_for(name: str, parts: Sequence[ColumnFacts]) -> Codec:
    """Return the codec `name` for the rows of all parts."""
    arrays = {key: [getattr(part, key) for part in parts] for key in ("low", "high", "least", "lowest_bit")}
    columns = ColumnFacts(
        sum(part.num_rows for part in parts), any(part.not_finite for part in parts), np.fmin.reduce(arrays["low"]),
        np.fmax.reduce(arrays["high"]), np.fmin.reduce(arrays["least"]), np.minimum.reduce(arrays["lowest_bit"]),
    )  # fmt: skip
    codec = CODECS[name].fit(columns)
    if columns.num_rows and not columns.not_finite:
        ends = np.stack([columns.low, columns.high])
        codec.largest = float(np.abs(codec.decode(codec.encode(ends))).max(initial=0.0))
    return codec


def reads_rows(name: str, dtype: str) -> bool:
    """Return whether `fit_codec` looks at the numbers of rows of `dtype`."""
    return bool(CODECS[name].refused) or dtype not in DELIVERED


def half_holds(rows: FloatRows) -> bool:
    """Return whether every number of float32 rows is the same as ``float16``, bit for bit."""
    half = Float16(rows.shape[1])
    return half.decode(half.encode(rows)).tobytes() == rows.tobytes()


def float_rows(rows: npt.NDArray[Any], dtype: str, where: str, first: int = 0) -> FloatRows:
    """Return rows of `dtype`, of which the first is number `first`, as float32; refuse whole numbers that it rounds."""
    if dtype == "bfloat16":
        return (rows.astype(np.uint32) << 16).view(np.float32)
    if rows.dtype.kind in "iu" and rows.dtype.itemsize > 2:
        rounded = (rows > _WHOLE) | (rows < -_WHOLE)
        if rounded.any():
            row, column = divmod(int(rounded.argmax()), rows.shape[1])
            raise InputError(
                f"{where}: row {first + row}, column {column} is {rows[row, column]}, but codecs store whole numbers "
                f"up to 2^24; store the table as {dtype}, by dtype {AUTO}"
            )
    with np.errstate(over="ignore"):
        floats = np.ascontiguousarray(rows, np.float32)
    if dtype == "float64" and (beyond := np.isinf(floats) & np.isfinite(rows)).any():
        row, column = divmod(int(beyond.argmax()), rows.shape[1])
        raise InputError(
            f"{where}: row {first + row}, column {column} is {rows[row, column]:g}, but codecs store numbers up to "
            f"3.4e38; store the table as {dtype}, by dtype {AUTO}"
        )
    return floats
