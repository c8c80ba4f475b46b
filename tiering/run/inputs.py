"""Ranges of arrays in files that tasks read, described in a plan and opened wherever a task runs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tiering.artifacts.reader import entry_width, mapped_file, offset_in
from tiering.run.step import resolve
from tiering.run.store import Store

AnyArray = npt.NDArray[Any]


@dataclass(frozen=True)
class FileArray:
    """An array of the user's in a file that every machine sees under the same path: any stride, any offset."""

    path: str
    dtype: str
    shape: Sequence[int]
    strides: Sequence[int]
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
        data = Store(str(Path(self.path).parent)).read(Path(self.path).name, first, nbytes)
        view: AnyArray = np.ndarray((count, *self.shape[1:]), dtype, data.data, 0, tuple(self.strides))
        return np.ascontiguousarray(view)


class RowSource(Protocol):
    """An array of the user's of which tasks read ranges: a dataclass whose fields have JSON types."""

    def read(self, begin: int, end: int) -> AnyArray:
        """Return entries [begin, end) along the first axis."""


def describe_rows(array: AnyArray | RowSource) -> dict[str, Any] | None:
    """Return an array as tasks open it; ``None`` if it lies in no file that they could open."""
    source = FileArray.of(array) if isinstance(array, np.ndarray) else array
    if source is None:
        return None
    return {"class": f"{type(source).__module__}:{type(source).__name__}", **vars(source)}


def open_rows(document: Mapping[str, Any]) -> RowSource:
    """Return the source that `describe_rows` described."""
    fields = dict(document)
    source: RowSource = resolve(fields.pop("class"))(**fields)
    return source
