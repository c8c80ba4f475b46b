"""Numbers unpacked front to back, of .npz archives and packed text; the size that one claims is checked first."""

from __future__ import annotations

import io
import math
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from tiering.artifacts.manifest import storage_dtype
from tiering.artifacts.storage import require_file, storage_errors
from tiering.datasets.arrays import name_feature_dtype
from tiering.datasets.import_context import ImportContext, Scratch, one_line
from tiering.errors import InputError, TieringError
from tiering.formats.arrow import pa, pa_csv
from tiering.formats.dataset import FeatureStream, GraphSoFar
from tiering.formats.npy_file import MAX_HEADER, NpyHeader, read_header

MOST_DEFLATED = 1100  # bytes that a byte of deflated data may become, a little more than the format allows
STEP = 1 << 24  # bytes that are unpacked together, or a row if that is longer


@dataclass(frozen=True)
class PackedRows:
    """Rows of numbers that can only be read front to back."""

    where: str
    dim: int
    dtype: np.dtype[Any]
    blocks: Callable[[int], Iterator[npt.NDArray[Any]]]
    """Function from a row to the rows from there on, in blocks of shape (some, dim)."""
    rows: int | None = None  # number of rows; None if it is known at the end only
    memory: int = 2 * STEP  # peak memory of reading, in bytes

    def require(self, count: int, rows: int | str | None) -> None:
        """Raise where the number of rows differs from `count`; ``None``: the number is unknown."""
        if rows not in (None, count):
            problem = f"expected {count} rows, one for each node or edge, found {rows}"
            raise InputError(f"{self.where}: {problem}; get the file again")

    def read(self, count: int, scratch: Scratch) -> npt.NDArray[Any]:
        """Return `count` rows, all there are, in memory or a temporary file."""
        self.require(count, self.rows)
        out = scratch.array((count, self.dim), self.dtype)
        for first, block in self._counted(0, count):
            out[first : first + block.shape[0]] = block
        return out

    def stream(self, count: int) -> FeatureStream:
        """Return the rows as features of `count` nodes, to be unpacked into the graph."""
        self.require(count, self.rows)
        name = name_feature_dtype(self.where, self.dtype)

        def pieces(start: int, _: GraphSoFar) -> Iterator[tuple[int, npt.NDArray[Any]]]:
            for first, block in self._counted(start, count):
                yield first, block.view(storage_dtype(name))

        size = 0 if self.rows is None else count * self.dim * self.dtype.itemsize
        return FeatureStream(count, self.dim, name, pieces, "unpacked", self.memory, size)

    def _counted(self, start: int, count: int) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        """Yield the first row of each block and the block; refuses another number of rows than `count`."""
        at = start
        for block in self.blocks(start):
            if at + block.shape[0] > count:
                self.require(count, "more")
            if block.shape[0]:
                yield at, block
            at += block.shape[0]
        self.require(count, at)


@dataclass(frozen=True)
class NpzMember(NpyHeader):
    """An array in an archive."""

    path: Path
    name: str

    @property
    def where(self) -> str:
        """Name for messages."""
        return f"{self.path}: {self.name}"

    def blocks(self, start: int = 0) -> Iterator[npt.NDArray[Any]]:
        """Yield the array from row `start` on, in blocks of rows. Cost: the member is unpacked from its beginning."""
        row = math.prod(self.shape[1:]) * self.dtype.itemsize
        rows = self.shape[0] if self.shape else 1
        step = max(1, STEP // max(1, row))
        with _open_member(self.path, self.name) as file:
            skipped = self.offset + start * row
            while skipped:
                skipped -= len(self._read(file, min(skipped, STEP)))
            for first in range(start, rows, step):
                count = min(step, rows - first)
                yield np.frombuffer(self._read(file, count * row), self.dtype).reshape(count, *self.shape[1:])
            if file.read(1):
                raise InputError(f"{self.where}: there are bytes after the array; get the file again")

    def flat(self) -> Iterator[npt.NDArray[Any]]:
        """Yield all entries as they lie there, in blocks."""
        return replace(self, shape=(math.prod(self.shape),), fortran_order=False).blocks()

    def packed_rows(self) -> PackedRows:
        """Return the array as rows, of one or more values each."""
        dim = math.prod(self.shape[1:])
        if len(self.shape) not in (1, 2) or not dim:
            raise InputError(f"{self.where}: expected shape (rows, dim), found {self.described}; get the file again")
        if self.fortran_order and dim > 1:
            problem = f"expected rows in C order, found {self.described} in Fortran order"
            raise InputError(f"{self.where}: {problem}; save it again with numpy.ascontiguousarray(array)")
        rows = replace(self, shape=(self.shape[0], dim), fortran_order=False)
        return PackedRows(self.where, dim, self.dtype, rows.blocks, self.shape[0])

    def column(self, kinds: str, words: str, context: ImportContext) -> npt.NDArray[Any]:
        """Return the array as one column, in memory or a temporary file, if its dtype is of one of `kinds`."""
        if self.dtype.kind not in kinds or math.prod(self.shape) != (self.shape or (0,))[0]:
            raise InputError(f"{self.where}: expected {words}, one column, found {self.described}; get the file again")
        return self.packed_rows().read(self.shape[0], context.scratch).reshape(-1)

    def _read(self, file: IO[bytes], count: int) -> bytes:
        data = file.read(count)
        if len(data) < count:
            raise InputError(f"{self.where}: its last {count - len(data)} bytes are missing; get the file again")
        return data


def open_npz(path: Path, what: str, context: ImportContext) -> dict[str, NpzMember]:
    """Return the arrays of an archive of `what`, by name; raise where one claims more bytes than the file can hold."""
    require_file(path, what)
    context.record_file(path)
    try:
        with storage_errors(path), zipfile.ZipFile(path) as archive:
            infos = [info for info in archive.infolist() if info.filename.endswith(".npy")]
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise InputError(f"{path}: expected {what}, a numpy archive ({one_line(error)}); get the file again") from error
    size = path.stat().st_size
    members: dict[str, NpzMember] = {}
    for info in infos:
        name = info.filename.removesuffix(".npy")
        if name in members:
            raise InputError(f"{path}: the archive has two arrays named {name}; get the file again")
        if info.compress_size > size or info.file_size > MOST_DEFLATED * info.compress_size + 1024:
            raise InputError(
                f"{path}: {name} claims to be {info.file_size} bytes, of {info.compress_size} packed ones in a file of "
                f"{size}: no archive can hold that; get the file again"
            )
        with _open_member(path, name) as file:
            start = io.BytesIO(file.read(MAX_HEADER + 12))
        members[name] = member = NpzMember(**vars(read_header(start, f"{path}: {name}")), path=path, name=name)
        if member.dtype.hasobject or member.dtype.names or member.dtype.byteorder == ">":
            raise InputError(f"{member.where}: expected plain numbers, found {member.described}; convert the array")
        claimed = member.offset + member.nbytes
        if claimed != info.file_size:
            problem = f"its header says {member.described}, {claimed} bytes, but the archive says {info.file_size}"
            raise InputError(f"{member.where}: {problem}; get the file again")
    return members


def require_member(members: dict[str, NpzMember], name: str, path: Path) -> NpzMember:
    """Return a member by name; `InputError` if there is none."""
    if name not in members:
        known = ", ".join(members) or "nothing"
        raise InputError(f"{path}: there is no array {name}, found {known}; check that this is the dataset's file")
    return members[name]


@contextmanager
def _open_member(path: Path, name: str) -> Iterator[IO[bytes]]:
    try:
        with storage_errors(path), zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as file:
            yield file
    except TieringError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError, KeyError) as error:
        raise InputError(f"{path}: {name}: damaged or truncated ({one_line(error)}); get the file again") from error


def open_packed_text(path: Path, what: str, kind: str, context: ImportContext) -> PackedRows:
    """Return the rows of a text of numbers without names of columns, packed with gzip, as entries of dtype `kind`."""
    require_file(path, what)
    context.record_file(path)
    read = pa_csv.ReadOptions(autogenerate_column_names=True, block_size=STEP)
    with _text_errors(path, what), pa_csv.open_csv(path, read) as file:
        names: list[str] = file.schema.names
    dtype = np.dtype(kind)
    types = dict.fromkeys(names, pa.from_numpy_dtype(dtype))
    nulls = ["", "nan", "NaN"] if dtype.kind == "f" else []
    convert = pa_csv.ConvertOptions(column_types=types, null_values=nulls)

    def blocks(start: int) -> Iterator[npt.NDArray[Any]]:
        at = 0
        with _text_errors(path, what), pa_csv.open_csv(path, read, convert_options=convert) as file:
            for batch in file:
                if at + batch.num_rows > start:
                    part = batch.slice(max(0, start - at))
                    yield np.stack([column.to_numpy(zero_copy_only=False) for column in part.columns], axis=1)
                at += batch.num_rows

    return PackedRows(str(path), len(names), dtype, blocks, memory=4 * STEP)


@contextmanager
def _text_errors(path: Path, what: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, EOFError) as error:
        raise InputError(f"{path}: expected {what} as gzip text ({one_line(error)}); get the file again") from error
