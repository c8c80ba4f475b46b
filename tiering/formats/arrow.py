"""Arrow data that other libraries export (PyCapsule interface): tables as streams, columns as NumPy arrays."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiering.errors import InputError


@runtime_checkable
class ArrowStream(Protocol):
    """A table or column in pieces, such as a frame of polars or pandas, a relation of DuckDB, a reader of pyarrow."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


@runtime_checkable
class ArrowArray(Protocol):
    """A column in one piece, such as an array of pyarrow."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> object: ...


def name_type(value: object) -> str:
    """Return the library and the type of an object, such as ``polars.DataFrame``."""
    return f"{type(value).__module__.partition('.')[0].lstrip('_')}.{type(value).__qualname__}"


def as_array(values: Any, what: str = "values") -> npt.NDArray[Any]:
    """Return a tensor on any device, an Arrow column, a table of one column, an array or a list as a NumPy array.

    Cost: a copy of an Arrow column in several pieces. `InputError` names `what` if a table has several columns, a value
    is null, or the column cannot be read.
    """
    if hasattr(values, "detach"):
        return np.asarray(values.detach().cpu().numpy())
    if isinstance(values, np.ndarray) or not isinstance(values, ArrowStream | ArrowArray):
        return np.asarray(values)
    try:
        column = pa.chunked_array(values if isinstance(values, ArrowStream) else [pa.array(values)])
    except Exception as error:  # of any library
        raise InputError(f"{what}: expected an Arrow column, but {name_type(values)} raised: {error}") from error
    if pa.types.is_struct(column.type):
        columns = column.flatten()
        if len(columns) != 1:
            names = ", ".join(field.name for field in column.type)[:200]
            raise InputError(f"{what}: expected one column, found {len(columns)}: {names}; select one")
        column = columns[0]
    if column.null_count:
        row = int(np.argmax(column.is_null().to_numpy()))
        raise InputError(f"{what}: expected a value in each row, found null at row {row}; fill or remove it")
    array: npt.NDArray[Any] = column.to_numpy()
    return array
