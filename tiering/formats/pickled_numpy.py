"""Numpy's arrays, scalars and dtypes as pickles describe them, made without running what the pickle names."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tiering.errors import InputError, shown

NDARRAY = "numpy.ndarray"


@dataclass(frozen=True)
class Name:
    """Something of Python's that a pickle names, such as ``torch.float16``. Nothing of that name is imported."""

    name: str


class DamagedError(Exception):
    """The pickle is not one, or means harm; the text says how."""


def named(value: Any) -> str:
    """A value of a pickle as messages quote it: a container may have no end in text."""
    return shown(value) if isinstance(value, (str, int)) else type(value).__name__


class PickledDtype:
    """A dtype of numpy's: plain numbers, truth values or text."""

    def __init__(self, name: str, align: Any = False, copy: Any = False) -> None:
        if not re.fullmatch("[|<]?(b1|[iu][1248]|f[248]|[SU][1-9][0-9]{0,5})", name):
            raise InputError(f"expected numpy arrays of plain numbers or text, found dtype {shown(name)}; convert them")
        self.value = np.dtype(name)

    def build(self, version: Any, order: Any, *_: Any) -> None:
        if order not in ("<", "|", "="):
            raise InputError(f"expected little-endian numbers, found byte order {named(order)}; convert them")


class PickledArray:
    """An array of numpy's."""

    value: np.ndarray[Any, Any] | None = None

    def __init__(self, kind: Any = None, *_: Any) -> None:
        if kind != Name(NDARRAY):
            raise DamagedError("an array of another class")

    def build(self, version: Any, shape: Any, dtype: Any, by_columns: Any, data: Any) -> None:
        self.value = _array(data, dtype, shape, "F" if by_columns else "C")


def _array(data: Any, dtype: Any, shape: Any, order: Any) -> np.ndarray[Any, Any]:
    """An array over bytes, which are not copied."""
    if not isinstance(data, bytes) or not isinstance(dtype, PickledDtype) or order not in ("C", "F"):
        raise DamagedError("an array without bytes or dtype")
    if len(shape) > 8 or not all(type(size) is int and size >= 0 for size in shape):
        raise DamagedError(f"an array of {len(shape)} axes, or of sizes that are none")
    if math.prod(shape) * dtype.value.itemsize != len(data):
        raise DamagedError(f"an array {shown(shape)} of {dtype.value} in {len(data)} bytes")
    array: np.ndarray[Any, Any] = np.frombuffer(data, dtype.value).reshape(shape, order=order)
    return array


def _scalar(dtype: Any, data: Any) -> Any:
    return _array(data, dtype, (1,), "C")[0]


NUMPY_CALLS: dict[str, Callable[..., Any]] = {"numpy.dtype": PickledDtype}
"""Name of a function -> what makes the value from its arguments."""
for _core in ("numpy.core", "numpy._core"):  # before and since numpy 2
    NUMPY_CALLS[f"{_core}.multiarray._reconstruct"] = PickledArray
    NUMPY_CALLS[f"{_core}.multiarray.scalar"] = _scalar
    NUMPY_CALLS[f"{_core}.numeric._frombuffer"] = _array
