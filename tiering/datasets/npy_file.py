"""Numpy files, opened with distrust: header parsed without pickle, length of the data checked, then mapped."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from tiering.artifacts.regular import require_file
from tiering.artifacts.storage import open_raw, storage_errors
from tiering.datasets.archive import refuse_archive
from tiering.datasets.options import shown
from tiering.errors import InputError

_MAGIC = b"\x93NUMPY"
_MAX_HEADER = 64 * 1024
_MAX_AXES = 8


@dataclass(frozen=True)
class NpyHeader:
    """What the header of a numpy file says; the length of the file agrees with it."""

    path: Path
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran_order: bool
    offset: int
    """Bytes before the data."""

    @property
    def described(self) -> str:
        """``float32 (5, 3)``, for messages."""
        return f"{self.dtype} {self.shape}"

    def open(self) -> npt.NDArray[Any]:
        """Map the data read-only, in the shape of the header."""
        if not self.fortran_order:
            return open_raw(self.path, self.dtype, self.shape, self.offset)
        by_columns: npt.NDArray[Any] = open_raw(self.path, self.dtype, self.shape[::-1], self.offset).T
        return by_columns


def is_npy(path: Path) -> bool:
    """Whether the file starts with numpy's magic bytes, whatever its name; `InputError` if it is an archive."""
    with storage_errors(path), path.open("rb") as file:
        if file.read(len(_MAGIC)) == _MAGIC:
            return True
    refuse_archive(path)
    return False


def read_header(path: Path, what: str = "a numpy file") -> NpyHeader:
    """Parse the header and check it against the size of the file.

    Parameters
    ----------
    path
        The file.
    what
        What the file should hold, for messages.

    Raises
    ------
    MissingError
        If there is nothing at `path`.
    InputError
        If it is no regular file, is empty, has no numpy header or a damaged one, holds Python objects or fields, is
        big-endian, is cut, or has bytes behind the data.
    """
    require_file(path, what)
    size = path.stat().st_size
    if size == 0:
        raise InputError(f"{path}: expected {what}, found an empty file (0 bytes); was a download interrupted?")
    if not is_npy(path):
        raise InputError(
            f"{path}: expected {what} with a numpy header, found {size} bytes without one "
            f"({_guess(path, size)}); write it with numpy.save, or see the options for headerless files"
        )
    if size < 12:
        raise InputError(f"{path}: damaged numpy header (the file ends in it, {size} bytes); get the file again")
    with storage_errors(path), path.open("rb") as file:
        shape, fortran, dtype = _parse(path, file)
        offset = file.tell()
    _check_dtype(path, dtype)
    header = NpyHeader(path, dtype, shape, fortran and len(shape) > 1, offset)
    _check_length(header, size)
    return header


def _parse(path: Path, file: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    readers = {
        1: (np.lib.format.read_array_header_1_0, 2),
        2: (np.lib.format.read_array_header_2_0, 4),
    }
    start = file.read(12)
    if start[6] not in readers or start[7] != 0:
        raise InputError(
            f"{path}: expected numpy file version 1.0 or 2.0, found {start[6]}.{start[7]}; "
            "save it again with numpy.save"
        )
    reader, width = readers[start[6]]
    length = int.from_bytes(start[8 : 8 + width], "little")
    if length > _MAX_HEADER:
        raise InputError(
            f"{path}: damaged numpy header (expected at most {_MAX_HEADER} bytes, found {length}); get the file again"
        )
    file.seek(8)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # files of Python 2 are read; Python's doubts about noise help nobody
            shape, fortran, dtype = reader(file, max_header_size=_MAX_HEADER)
    except Exception as error:  # numpy evaluates the text: almost any error can come of a damaged one
        raise InputError(
            f"{path}: damaged numpy header ({' '.join(str(error).split())[:120]}); get the file again"
        ) from error
    return tuple(int(n) for n in shape), bool(fortran), np.dtype(dtype)


def _check_dtype(path: Path, dtype: np.dtype[Any]) -> None:
    if dtype.hasobject:
        raise InputError(
            f"{path}: expected numbers, found pickled Python objects, which are never loaded (unpickling runs "
            "code); convert the file to a plain numeric array first"
        )
    if dtype.names is not None or dtype.subdtype is not None or dtype.kind in "USMmc" or dtype.itemsize > 8:
        raise InputError(f"{path}: expected a plain numeric array, found dtype {dtype}; save the numbers alone")
    if dtype.byteorder == ">":
        raise InputError(
            f"{path}: expected little-endian numbers, found big-endian {dtype.str}; "
            f"convert with array.astype('{dtype.newbyteorder('<').str}')"
        )


def _check_length(header: NpyHeader, size: int) -> None:
    if len(header.shape) > _MAX_AXES:
        raise InputError(
            f"{header.path}: damaged numpy header (expected a shape of at most {_MAX_AXES} axes, found "
            f"{len(header.shape)}); get the file again"
        )
    if any(n < 0 for n in header.shape):
        raise InputError(
            f"{header.path}: damaged numpy header (negative size in shape {', '.join(map(shown, header.shape))}); get "
            "the file again"
        )
    # What has no value has no bytes either, but numpy counts the other axes all the same.
    if math.prod(n or 1 for n in header.shape) * header.dtype.itemsize >= 2**63:
        raise InputError(
            f"{header.path}: damaged numpy header (expected a shape of less than 2^63 bytes, found "
            f"{', '.join(map(shown, header.shape))}); get the file again"
        )
    expected = header.offset + math.prod(header.shape) * header.dtype.itemsize
    if size < expected:
        raise InputError(
            f"{header.path}: truncated: the header announces {header.described}, {expected} bytes in all, "
            f"found {size}; get the file again"
        )
    if size > expected:
        raise InputError(
            f"{header.path}: oversized: the header announces {header.described}, {expected} bytes in all, "
            f"found {size}; the header does not belong to this data, get or write the file again"
        )


def _guess(path: Path, size: int) -> str:
    """What a headerless file of this size could be."""
    with path.open("rb") as file:
        start = file.read(1)
    if start == b"\x1f":
        return "is it packed with gzip? Unpack it first"
    if start == b"\x80":
        return "it looks like a Python pickle, which is never loaded"
    guesses = [f"{size // item} x {name}" for name, item in (("float32", 4), ("int64", 8)) if size % item == 0]
    return "a raw file? It would hold " + " or ".join(guesses) if guesses else "damaged?"
