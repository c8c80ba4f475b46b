"""Arrow data that other libraries export (PyCapsule interface): tables as streams, columns as NumPy arrays."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from tiering.errors import InputError

__all__ = ["ArrowStream", "as_array", "name_type", "pa", "pa_csv", "pa_parquet", "pc"]


class _Module:
    """A module that is imported at the first access to one of its names: an import of numpy files needs none."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        value = getattr(import_module(self._name), name)
        setattr(self, name, value)
        return value


if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv as pa_csv
    import pyarrow.parquet as pa_parquet
else:
    pa, pc, pa_csv, pa_parquet = map(_Module, ("pyarrow", "pyarrow.compute", "pyarrow.csv", "pyarrow.parquet"))


@runtime_checkable
class ArrowStream(Protocol):
    """A table or column in pieces, such as a frame of polars or pandas, a relation of DuckDB, a reader of pyarrow."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


def name_type(value: object) -> str:
    """Return the library and the type of an object, such as ``polars.DataFrame``."""
    name = f"{type(value).__module__.partition('.')[0].lstrip('_')}.{type(value).__qualname__}"
    return name.removeprefix("builtins.")


def as_array(values: Any, what: str = "values") -> npt.NDArray[Any]:
    """Return a tensor on any device, an Arrow column, a table of one column, an array or a list as a NumPy array.

    Cost: a copy of an Arrow column in pieces. `InputError` names `what` if there are nulls or several columns.
    """
    try:
        if hasattr(values, "detach"):
            return np.asarray(values.detach().cpu().numpy())
        stream = isinstance(values, ArrowStream)
        if isinstance(values, np.ndarray) or not (stream or hasattr(values, "__arrow_c_array__")):
            return np.asarray(values)
        column = pa.chunked_array(values if stream else [pa.array(values)])
    except Exception as error:  # of any library; also bfloat16, sparse or quantized tensors, lists of unequal lengths
        raise InputError(f"{what}: expected an array of numbers, found {name_type(values)} ({error})") from error
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
