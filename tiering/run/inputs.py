"""What tasks read of a job's inputs: ranges of arrays in files, described in a plan, opened wherever a task runs."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from tiering.artifacts.checksum import (
    BLOCK_BYTES,
    DIGEST_BYTES,
    PREFIX,
    block_digest,
    combine_digests,
    num_blocks,
)
from tiering.artifacts.document import MANIFEST, document_problems
from tiering.artifacts.manifest import CHECKSUMS, storage_dtype
from tiering.artifacts.reader import entry_width, mapped_file, offset_in
from tiering.errors import FormatError
from tiering.run.step import resolve
from tiering.run.store import Store, open_store

AnyArray = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]


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
        """The file behind a memory map or a view of one; ``None`` if there is none with a name."""
        mapped = mapped_file(array)
        if mapped is None or not Path(str(mapped.filename)).is_file() or array.size == 0 or min(array.strides) <= 0:
            return None
        path = os.path.realpath(str(mapped.filename))
        return cls(path, array.dtype.str, array.shape, array.strides, offset_in(mapped, array))

    def read(self, begin: int, end: int) -> AnyArray:
        """Entries [begin, end) along the first axis, in memory and contiguous."""
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
        fields = {**vars(self), "shape": list(self.shape), "strides": list(self.strides)}
        return {"class": "tiering.run.inputs:FileArray", **fields}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> FileArray:
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


class StoredArtifact:
    """An artifact by the files of its directory, wherever a store has them; ranges that are read are verified.

    `url`: its directory, or its prefix in a bucket. Checksums are those of blocks of 64 MiB: what is read is widened to
    whole blocks, and compared.
    """

    def __init__(self, url: str) -> None:
        self.url, self.store = url, open_store(url)
        data = self.store.read(MANIFEST).tobytes()
        try:
            self.document: dict[str, Any] = json.loads(data)
        except ValueError as error:
            raise FormatError(f"{url}: {MANIFEST} is not valid JSON ({error}); make the artifact again") from error
        if problems := document_problems(self.document, None, data):
            raise FormatError(f"{url}: {problems[0]}; make the artifact again")
        self._digests: AnyArray | None = None

    def read(self, name: str, begin: int = 0, end: int | None = None) -> AnyArray:
        """Entries [begin, end) of a file's array along its first axis, compared with their checksums."""
        entry: dict[str, Any] | None = self.document["files"].get(name)
        if entry is None:
            raise FormatError(f"{self.url}: {MANIFEST} names no file {name}; make the artifact again")
        dtype, shape = storage_dtype(entry["dtype"]), tuple(entry["shape"])
        row = dtype.itemsize * int(np.prod(shape[1:], dtype=np.int64))
        end = shape[0] if end is None else end
        values: AnyArray = self.read_bytes(name, begin * row, end * row).view(dtype)
        return values.reshape(end - begin, *shape[1:])

    def read_bytes(self, name: str, begin: int, end: int) -> Bytes:
        """Bytes [begin, end) of a file of the artifact, or of one that it refers to, compared with their checksums."""
        store, key, nbytes = self._place(name)
        digests = self._digests_of(name)
        if digests is None or begin == end:
            return store.read(key, begin, end - begin)
        block = begin // BLOCK_BYTES
        start, stop = block * BLOCK_BYTES, min(nbytes, -(-end // BLOCK_BYTES) * BLOCK_BYTES)
        data = store.read(key, start, stop - start)
        for number, at in enumerate(range(0, data.size, BLOCK_BYTES), block):
            if block_digest(data[at : at + BLOCK_BYTES].data) != digests[number].tobytes():
                place = f"bytes {start + at} to {min(stop, start + at + BLOCK_BYTES)}"
                raise FormatError(f"{self.url}: {name}: {place} are not what was written; make the artifact again")
        return data[begin - start : end - start]

    def _place(self, name: str) -> tuple[Store, str, int]:
        """The store and key of a file, and its bytes."""
        if name in self.document["files"]:
            return self.store, name, int(self.document["files"][name]["bytes"])
        external = self.document["external"].get(name)
        if external is None:
            raise FormatError(f"{self.url}: {MANIFEST} names no file {name}; make the artifact again")
        place, inside = str(external["path"]), not Path(external["path"]).is_absolute()
        if inside:
            return self.store, place, int(external["bytes"])
        return open_store(str(Path(place).parent)), Path(place).name, int(external["bytes"])

    def _in_blocks(self) -> list[tuple[str, int, str]]:
        """Files that are known by blocks, in the order of their digests: name, bytes, checksum of all."""
        files = sorted((name, entry) for name, entry in self.document["files"].items() if name != CHECKSUMS)
        whole = sorted((n, e) for n, e in self.document["external"].items() if e["digest"].startswith(PREFIX))
        known = [(name, entry["bytes"], entry["checksum"]) for name, entry in files]
        return known + [(name, entry["bytes"], entry["digest"]) for name, entry in whole]

    def _digests_of(self, name: str) -> AnyArray | None:
        """Digests of the blocks of a file; ``None`` if they are not known: samples of it are, or it is of old."""
        if CHECKSUMS not in self.document["files"]:
            return None
        at = 0
        for other, nbytes, checksum in self._in_blocks():
            count = num_blocks(nbytes)
            if other == name:
                if self._digests is None:
                    self._digests = self.store.read(CHECKSUMS).reshape(-1, DIGEST_BYTES)
                digests = self._digests[at : at + count]
                if combine_digests(digests.tobytes()) != checksum:
                    raise FormatError(f"{self.url}: {CHECKSUMS}: the digests of {name} do not give its checksum")
                return digests
            at += count
        return None
