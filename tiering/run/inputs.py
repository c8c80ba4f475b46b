"""Ranges of arrays in files that tasks read, described in a plan and opened wherever a task runs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from tiering.artifacts.reader import entry_width, mapped_file, offset_in
from tiering.run.step import resolve
from tiering.run.store import open_store

AnyArray = npt.NDArray[Any]


@dataclass(frozen=True)
class FileArray:
    """An array of the user's in a file that every machine sees under the same path: any stride, any offset."""

    path: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    @classmethod
    def of(cls, array: AnyArray) -> FileArray | None:
        """Return the file behind a memory map or a view of one; ``None`` if there is none with a name."""
        mapped = mapped_file(array)
        if mapped is None or not Path(str(mapped.filename)).is_file() or array.size == 0 or min(array.strides) <= 0:
            return None
        path = os.path.realpath(str(mapped.filename))
        return cls(path, array.dtype.str, array.shape, array.strides, offset_in(mapped, array))

    def read(self, begin: int, end: int) -> AnyArray:
        """Return entries [begin, end) along the first axis, in memory and contiguous."""
        first = self.offset + begin * self.strides[0]
        count = end - begin
        if count == 0:
            return np.empty((0, *self.shape[1:]), self.dtype)
        dtype = np.dtype(self.dtype)
        width = entry_width(dtype.itemsize, self.shape, self.strides)
        nbytes = (count - 1) * self.strides[0] + width
        data = open_store(str(Path(self.path).parent)).read(Path(self.path).name, first, nbytes)
        view: AnyArray = np.ndarray((count, *self.shape[1:]), dtype, data.data, 0, self.strides)
        return np.ascontiguousarray(view)

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON holds them."""
        fields = {**vars(self), "shape": list(self.shape), "strides": list(self.strides)}
        return {"class": "tiering.run.inputs:FileArray", **fields}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> FileArray:
        """Return the object whose `to_json` gave `document`."""
        shape, strides = tuple(document["shape"]), tuple(document["strides"])
        return replace(cls(**document), shape=shape, strides=strides)


@runtime_checkable
class RowSource(Protocol):
    """An array of the user's of which tasks read ranges."""

    def read(self, begin: int, end: int) -> AnyArray:
        """Return entries [begin, end) along the first axis."""

    def to_json(self) -> dict[str, Any]:
        """Return the fields, JSON types, and as ``class`` the ``module:name`` of a class with `from_json`."""


def row_source(array: AnyArray | RowSource) -> RowSource | None:
    """Return an array as tasks read it; ``None`` if it lies in no file that they could open."""
    return FileArray.of(array) if isinstance(array, np.ndarray) else array


def open_row_source(document: Mapping[str, Any]) -> RowSource:
    """Return the source that `RowSource.to_json` described."""
    fields = dict(document)
    source: RowSource = resolve(fields.pop("class")).from_json(fields)  # type: ignore[attr-defined]
    return source
