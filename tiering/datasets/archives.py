"""Arrays in archives of numpy's (.npz), streamed: deflated members cannot be mapped, and may be larger than memory.

What an archive claims is checked before anything is made room for: deflated data is never more than some 1032 times as
long as it is packed, and a member must be as long as the header of its array says.
"""

from __future__ import annotations

import io
import math
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from tiering.artifacts.regular import require_file
from tiering.artifacts.storage import storage_errors
from tiering.datasets.features import feature_dtype
from tiering.datasets.import_context import ImportContext
from tiering.datasets.tables import one_line
from tiering.errors import InputError, TieringError
from tiering.formats.npy_file import MAX_HEADER, NpyHeader, read_header
from tiering.formats.protocols import FeatureStream, GraphSoFar

MOST_DEFLATED = 1100
"""Bytes that a byte of deflated data may become, a little more than the format allows."""
STEP = 1 << 24
"""Bytes that are unpacked together, at the least a row."""


@dataclass(frozen=True)
class Member(NpyHeader):
    """An array in an archive."""

    path: Path
    name: str

    @property
    def where(self) -> str:
        """For messages."""
        return f"{self.path}: {self.name}"

    def blocks(self, start: int = 0) -> Iterator[npt.NDArray[Any]]:
        """The array from row `start` on, in blocks of some rows. Cost: the member is unpacked from its beginning."""
        row = math.prod(self.shape[1:]) * self.dtype.itemsize
        rows, skipped = self.shape[0] if self.shape else 1, start * row
        step = max(1, STEP // max(1, row))
        with _opened(self.path, self.name) as file:
            self._skip(file, self.offset + skipped)
            for first in range(start, rows, step):
                count = min(step, rows - first)
                data = self._read(file, count * row)
                yield np.frombuffer(data, self.dtype).reshape(count, *self.shape[1:])
            if file.read(1):
                raise InputError(f"{self.where}: has bytes behind its array; get the file again")

    def flat(self) -> Iterator[npt.NDArray[Any]]:
        """All entries one after the other as they lie there, in blocks."""
        return replace(self, shape=(math.prod(self.shape),), fortran_order=False).blocks()

    def column(self, kinds: str, words: str, context: ImportContext) -> npt.NDArray[Any]:
        """The whole array as one column, in memory or a temporary file, if its dtype is of one of `kinds`."""
        if self.dtype.kind not in kinds or math.prod(self.shape) != (self.shape or (0,))[0]:
            raise InputError(f"{self.where}: expected {words}, one column, found {self.described}; get the file again")
        return self.store(context, self.dtype).reshape(-1)

    def store(self, context: ImportContext, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """The whole array with entries of `dtype`, in memory or a temporary file."""
        out, at = context.scratch.array(self.shape[::-1] if self.fortran_order else self.shape, dtype), 0
        flat = out.reshape(-1)
        for block in self.flat():
            flat[at : at + block.size] = block
            at += block.size
        return out.T if self.fortran_order else out

    def _skip(self, file: IO[bytes], count: int) -> None:
        while count:
            count -= len(self._read(file, min(count, STEP)))

    def _read(self, file: IO[bytes], count: int) -> bytes:
        data = file.read(count)
        if len(data) < count:
            raise InputError(f"{self.where}: ends {count - len(data)} bytes before its array does; get the file again")
        return data


def open_npz(path: Path, what: str, context: ImportContext) -> dict[str, Member]:
    """The arrays of an archive that should hold `what`, by name.

    Raises
    ------
    MissingError, InputError
        If it is not there; if it is no archive, is damaged, holds Python objects, or claims more than it can hold.
    """
    require_file(path, what)
    context.used(path)
    try:
        with storage_errors(path), zipfile.ZipFile(path) as archive:
            infos = [info for info in archive.infolist() if info.filename.endswith(".npy")]
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise InputError(f"{path}: expected {what}, an archive of numpy's ({one_line(error)}); get it again") from error
    size = path.stat().st_size
    members = {}
    for info in infos:
        name = info.filename.removesuffix(".npy")
        if name in members:
            raise InputError(f"{path}: expected one array {name}, found two of that name; get the file again")
        if info.compress_size > size or info.file_size > MOST_DEFLATED * info.compress_size + 1024:
            raise InputError(
                f"{path}: {name} claims to be {info.file_size} bytes, of {info.compress_size} packed ones in a file of "
                f"{size}: no archive can hold that; get the file again"
            )
        members[name] = _member(path, name, info.file_size)
    return members


def require_member(members: dict[str, Member], name: str, path: Path) -> Member:
    """A member by name; `InputError` if there is none."""
    if name not in members:
        known = ", ".join(members) or "nothing"
        raise InputError(f"{path}: expected an array {name}, found {known}; check that it is the dataset's file")
    return members[name]


def rows_of(member: Member, count: int) -> FeatureStream:
    """Features of `count` nodes in a member, to be unpacked into the graph."""
    require_rows(member.where, member.shape[:1], count)
    if len(member.shape) != 2 or not member.shape[1]:
        raise InputError(
            f"{member.where}: expected features of shape (nodes, dim), found {member.described}; get the file again"
        )
    require_rows_first(member)

    def pieces(start: int, graph: GraphSoFar) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        for block in member.blocks(start):
            yield start, block
            start += block.shape[0]

    dtype = feature_dtype(member.path, member.dtype)
    return FeatureStream(count, member.shape[1], dtype, pieces, "unpacked", 2 * STEP, member.nbytes)


def require_rows(where: str, rows: tuple[int, ...], count: int) -> None:
    """Refuse another number of rows than there are nodes."""
    if rows != (count,):
        raise InputError(f"{where}: expected a row for each of {count} nodes, found {rows}; get the file again")


def require_rows_first(member: Member) -> None:
    """Refuse rows that do not lie together: they could not be read one after the other."""
    if member.fortran_order:
        raise InputError(
            f"{member.where}: expected rows that lie together (C order), found {member.described} in Fortran order; "
            "save it again with numpy.ascontiguousarray(array)"
        )


def _member(path: Path, name: str, size: int) -> Member:
    with _opened(path, name) as file:
        start = io.BytesIO(file.read(MAX_HEADER + 12))
    member = Member(**vars(read_header(start, f"{path}: {name}")), path=path, name=name)
    dtype = member.dtype
    if dtype.hasobject or dtype.names or dtype.byteorder == ">":
        raise InputError(f"{member.where}: expected plain numbers, found {member.described}; convert them")
    if member.offset + member.nbytes != size:
        raise InputError(
            f"{member.where}: its header says {member.described}, {member.offset + member.nbytes} bytes, the archive "
            f"{size}; get the file again"
        )
    return member


@contextmanager
def _opened(path: Path, name: str) -> Iterator[IO[bytes]]:
    """A member being unpacked; damage is `InputError`."""
    try:
        with storage_errors(path), zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as file:
            yield file
    except TieringError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError, KeyError) as error:
        raise InputError(f"{path}: {name}: damaged or cut ({one_line(error)}); get the file again") from error
