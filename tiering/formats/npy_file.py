"""Numpy files, opened safely: header parsed without pickle, length of the data checked, then mapped."""

from __future__ import annotations

import io
import math
import struct
import warnings
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from tiering.artifacts.manifest import storage_dtype
from tiering.artifacts.storage import ALIGNMENT, file_exists, open_raw, require_file, storage_errors
from tiering.errors import InputError, quoted

_MAGIC = b"\x93NUMPY"
# by version: what parses the header, and how many bytes the length of the header takes
_PARSERS = {(1, 0): (np.lib.format.read_array_header_1_0, 2), (2, 0): (np.lib.format.read_array_header_2_0, 4)}
MAX_HEADER = 64 * 1024  # bytes of the longest header that is read
_MAX_AXES = 8
_ZIP_MAGIC = (b"PK\x03\x04", b"PK\x05\x06")
_STEMS = frozenset({  # names that the formats of numpy files give to what they read
    "edge_index", "indptr", "indices", "edge_weight", "edge_type", "edge_id", "edge_feat", "node_feat", "node_label",
    "node_labels", "num_nodes", "train_idx", "val_idx", "valid_idx", "test_idx",
})  # fmt: skip


@dataclass(frozen=True)
class NpyHeader:
    """The header of a numpy file."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran_order: bool  # whether the first of several axes is the fastest
    offset: int  # bytes before the data

    @property
    def described(self) -> str:
        """``float32 (5, 3)``, for messages."""
        return f"{self.dtype} {self.shape}"

    @property
    def nbytes(self) -> int:
        """Bytes of the data."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class NpyFile(NpyHeader):
    """A numpy file whose header was checked; the length of the file agrees with it."""

    path: Path
    what: str  # the content that the file should have, for messages

    def array(self) -> npt.NDArray[Any]:
        """Map the data read-only, in the shape of the header."""
        shape = self.shape[::-1] if self.fortran_order else self.shape
        mapped: npt.NDArray[Any] = open_raw(self.path, self.dtype, shape, self.offset)
        return mapped.T if self.fortran_order else mapped

    def column(self, kinds: str, words: str) -> npt.NDArray[Any]:
        """Map the data as one column, without a second axis of length 1; its dtype is of one of `kinds`, in `words`."""
        return as_column(self.array(), str(self.path), self.what, kinds, words)


def as_column(array: npt.NDArray[Any], where: str, what: str, kinds: str, words: str) -> npt.NDArray[Any]:
    """Return an array that should hold `what` as one column: see `NpyFile.column`."""
    described = f"{array.dtype} {array.shape}"
    if array.ndim == 2 and 1 in array.shape:
        array = array.reshape(-1)
    if array.ndim != 1:
        raise InputError(f"{where}: expected {what}, one column, found {described}; choose one")
    if array.dtype.kind not in kinds:
        raise InputError(f"{where}: expected {words}, found {described}; convert the values")
    return array


def is_npy(path: Path) -> bool:
    """Return whether a file starts with numpy's magic bytes; `InputError` if it is an archive."""
    start = read_start(path, len(_MAGIC))
    refuse_archive(path, start)
    return start == _MAGIC


def read_start(path: Path, size: int) -> bytes:
    """Return the first bytes of a file."""
    with storage_errors(path), path.open("rb", 0) as file:
        return file.read(size)


def open_npy(path: Path, what: str = "a numpy file", *, dates: bool = False) -> NpyFile:
    """Parse the header of a file that should hold `what`, perhaps `dates`, and check it against the file's size."""
    require_file(path, what)
    size = path.stat().st_size
    if size == 0:
        raise InputError(f"{path}: expected {what}, found an empty file (0 bytes); get the file again")
    if not (start := read_start(path, MAX_HEADER + 12)).startswith(_MAGIC):
        refuse_archive(path, start)
        raise InputError(
            f"{path}: expected {what} with a numpy header, found {size} bytes without one "
            f"({_guess(start, size)}); write it with numpy.save, or see the options for headerless files"
        )
    file = NpyFile(**vars(read_header(io.BytesIO(start), path)), path=path, what=what)
    _check_dtype(path, file.dtype, "USmc" if dates else "USMmc")
    _check_length(file, size)
    return file


def read_header(file: IO[bytes], where: str | Path) -> NpyHeader:
    """Read the header of a file up to the data; `InputError` if it is none or damaged."""
    try:
        version = np.lib.format.read_magic(file)
        parser, width = _PARSERS.get(version, (None, 0))
        length = int.from_bytes(file.read(width), "little")
        if length > MAX_HEADER:  # numpy would read as much before it refuses it
            raise ValueError(f"expected at most {MAX_HEADER} bytes, found {length}")
        if parser is not None:
            file.seek(len(_MAGIC) + 2)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # files of Python 2 are read; Python's doubts about noise help nobody
                shape, fortran, dtype = parser(file, max_header_size=MAX_HEADER)
    except Exception as error:  # numpy evaluates the text: almost any error can come of a damaged one
        raise _damaged(where, " ".join(str(error).split())[:120]) from error
    if parser is None:
        raise InputError(
            f"{where}: expected numpy file version 1.0 or 2.0, found {version[0]}.{version[1]}; "
            "save it again with numpy.save"
        )
    sizes = tuple(int(n) for n in shape)
    return NpyHeader(np.dtype(dtype), sizes, bool(fortran) and len(sizes) > 1, file.tell())


def npy_header(dtype: str, shape: tuple[int, ...]) -> bytes:
    """Return the header of a file, padded for direct I/O to 4096 bytes, if the array is empty to 128."""
    descr = storage_dtype(dtype).str
    fields = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {tuple(map(int, shape))!r}, }}"
    magic = _MAGIC + b"\x01\x00"
    length = (128 if 0 in shape else ALIGNMENT) - len(magic) - 2
    return magic + struct.pack("<H", length) + fields.encode("latin1").ljust(length - 1) + b"\n"


def _damaged(where: str | Path, what: str) -> InputError:
    return InputError(f"{where}: damaged numpy header ({what}); get the file again")


def _check_dtype(path: Path, dtype: np.dtype[Any], refused: str) -> None:
    if dtype.hasobject:
        raise InputError(
            f"{path}: expected numbers, found pickled Python objects, which are never loaded (unpickling runs "
            "code); convert the file to a plain numeric array first"
        )
    if dtype.names is not None or dtype.subdtype is not None or dtype.kind in refused or dtype.itemsize > 8:
        raise InputError(f"{path}: expected a plain numeric array, found dtype {dtype}; save only the numbers")
    if dtype.byteorder == ">":
        raise InputError(
            f"{path}: expected little-endian numbers, found big-endian {dtype.str}; "
            f"convert with array.astype('{dtype.newbyteorder('<').str}')"
        )


def _check_length(file: NpyFile, size: int) -> None:
    path, shape, item = file.path, file.shape, file.dtype.itemsize
    if len(shape) > _MAX_AXES:
        raise _damaged(path, f"expected a shape of at most {_MAX_AXES} axes, found {len(shape)}")
    if any(n < 0 for n in shape):
        raise _damaged(path, f"negative size in shape {', '.join(map(quoted, shape))}")
    # What has no value has no bytes either, but numpy counts the other axes all the same.
    if math.prod(n or 1 for n in shape) * item >= 2**63:
        raise _damaged(path, f"expected a shape of less than 2^63 bytes, found {', '.join(map(quoted, shape))}")
    expected = file.offset + file.nbytes
    announced = f"the header says {file.described}, {expected} bytes in total, found {size}"
    if size < expected:
        raise InputError(f"{path}: truncated: {announced}; get the file again")
    if size > expected:
        raise InputError(
            f"{path}: oversized: {announced}; the header does not match the data: get or write the file again"
        )


def _guess(start: bytes, size: int) -> str:
    """Return a guess at a headerless file of this size that begins so."""
    if start[:1] == b"\x1f":
        return "unpack it first if it is compressed with gzip"
    if start[:1] == b"\x80":
        return "this looks like a Python pickle, which is never loaded"
    guesses = [f"{size // item} x {name}" for name, item in (("float32", 4), ("int64", 8)) if size % item == 0]
    return "raw data would be " + " or ".join(guesses) if guesses else "damaged?"


def refuse_archive(path: Path, start: bytes) -> None:
    """Raise `InputError` if a file that begins so is a zip archive: says what is in it, how to save that as arrays."""
    if start[:4] not in _ZIP_MAGIC:
        return
    try:
        with zipfile.ZipFile(path) as archive:
            members = {Path(member.filename).stem: member for member in archive.infolist()}
    except (zipfile.BadZipFile, OSError) as error:
        raise InputError(f"{path}: expected a numpy file, found a damaged zip archive ({error})") from error
    if {"format", "shape", "data"} <= set(members):
        kind = "a scipy sparse matrix (save_npz)"
        advice = f"numpy.save('{path.stem}.npy', scipy.sparse.load_npz('{path.name}').toarray())"
    else:
        packed = any(member.compress_type != zipfile.ZIP_STORED for member in members.values())
        names = ", ".join(sorted(members)[:6]) or "nothing"
        kind = f"{'a compressed' if packed else 'an'} archive (npz) of {names}"
        advice = f"numpy.save('NAME.npy', numpy.load('{path.name}')['{next(iter(sorted(members)), 'NAME')}'])"
    raise InputError(
        f"{path}: expected a numpy file (.npy), found {kind}; an array in an archive cannot be mapped: "
        f"save it as plain arrays, for example {advice}"
    )


def refuse_archives(paths: Iterable[Path]) -> None:
    """Refuse archives with names that the formats of numpy files read."""
    for path in sorted(paths):
        if path.suffix == ".npz" and path.stem in _STEMS and file_exists(path, "an archive"):
            refuse_archive(path, read_start(path, 4))
