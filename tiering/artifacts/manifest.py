"""The manifest of an artifact, parsed: its files, nested artifacts, files outside, and problems of these."""

from __future__ import annotations

import math
import os
import re
from collections import UserDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from tiering.artifacts.checksum import DIGEST_BYTES, PREFIX, Verifier, combine_digests, num_blocks
from tiering.artifacts.storage import AnyArray, Bytes, OpenDirectory, open_raw, storage_errors
from tiering.errors import FormatError, InternalError
from tiering.memory import available_memory

Digests = bytes  # digests of the blocks of a file, concatenated
CHECKSUMS = "checksums"  # file of an artifact with the digests of the blocks of all others
MOVED = "external.json"  # file of an artifact with new paths of external files, by name; no digest covers it
UNREAD = "unread_files"  # file of a graph with the paths that its import did not read; no digest covers it
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_+.-]{0,99}")

INT32_NODES = 2**31  # ids are int32 while their type has fewer nodes than this

Relation = tuple[str, str, str]  # (source type, name, destination type)


def valid_name(name: str) -> bool:
    """Return whether `name` may be a node type or relation name: 1 to 100 of letters, digits, ``_+.-``, no ``__``."""
    return bool(_NAME.fullmatch(name)) and "__" not in name


def id_bytes(num_nodes: int) -> int:
    """Return the bytes of a stored id of a type of `num_nodes` nodes: 4, or 8 from `INT32_NODES` nodes on."""
    return 8 if num_nodes >= INT32_NODES else 4


def relation_key(relation: Relation) -> str:
    """Return ``("paper", "cites", "paper")`` as ``"paper:cites:paper"``."""
    return ":".join(relation)


def named_relations(known: Iterable[Relation], name: Any) -> list[Relation]:
    """Return the relations that a tuple, its key, a name, or a pair of types names; the first form that fits counts."""
    text = ":".join(map(str, name)) if isinstance(name, (tuple, list)) else name
    forms = (relation_key, itemgetter(1), lambda relation: ":".join(relation[::2]))
    matches = ([relation for relation in known if form(relation) == text] for form in forms)
    return next(filter(None, matches), [])


def storage_dtype(dtype: str) -> np.dtype[Any]:
    """Return the little-endian NumPy dtype whose bytes hold `dtype`; ``bfloat16`` is kept as ``uint16``."""
    stored: np.dtype[Any] = np.dtype("uint16" if dtype == "bfloat16" else dtype).newbyteorder("<")
    return stored


@dataclass(frozen=True)
class FileEntry:
    """A raw file inside the artifact: little-endian, C order, no header."""

    dtype: str  # NumPy name of one element, or ``bfloat16``
    shape: tuple[int, ...]
    checksum: str
    blocks: Digests | None = field(default=None, compare=False, repr=False)  # while the artifact is being written

    @classmethod
    def of(cls, dtype: str, shape: tuple[int, ...], blocks: bytes) -> FileEntry:
        """Return the entry of a file with these digests of its blocks."""
        return cls(dtype, shape, combine_digests(blocks), blocks)

    @property
    def digest(self) -> str:
        """The checksum, as external files have it."""
        return self.checksum

    @property
    def bytes(self) -> int:
        """Size of the file in bytes."""
        return storage_dtype(self.dtype).itemsize * math.prod(self.shape)


@dataclass(frozen=True)
class External:
    """A file outside the artifact that it refers to: a feature table that is not copied, or a stripe file."""

    path: Path  # absolute path; in the manifest it may be relative, if the file lies inside the artifact's directory
    bytes: int
    digest: str  # sampled digest or full checksum; the prefix says which
    blocks: Digests | None = field(default=None, compare=False, repr=False)  # while written, with a full checksum

    @classmethod
    def of(cls, path: Path, nbytes: int, blocks: Digests) -> External:
        """Return the entry of a file with these digests of its blocks."""
        return cls(path, nbytes, combine_digests(blocks), blocks)

    @property
    def whole(self) -> bool:
        """Whether the digest covers every byte."""
        return self.digest.startswith(PREFIX)


@dataclass
class Manifest:
    """The ``manifest.json`` of an artifact, which passed its schema."""

    path: Path
    kind: str
    version: tuple[int, int]
    files: dict[str, FileEntry]  # files inside the artifact by relative path
    parts: dict[str, str]  # nested artifacts: name (also the directory) to digest of their manifest
    external: dict[str, External]  # files outside the artifact by name
    provenance: dict[str, Any]  # stage, options, seed, package version, digests of the inputs
    body: dict[str, Any]
    digest: str = ""  # digest of the manifest's bytes: identifies the artifact's content
    held: OpenDirectory | None = field(default=None, repr=False)  # the files as they were when the artifact was opened
    requires: tuple[str, ...] = ()  # features of the format that a reader must know
    verify: bool = False
    arrays: dict[str, AnyArray] = field(default_factory=dict, repr=False)
    verifiers: dict[str, Verifier] = field(default_factory=dict, repr=False)

    def array(self, name: str) -> AnyArray:
        """Map the file `name` read-only, once; with `verify` see `verified`."""
        entry = self.files[name]
        if name not in self.arrays:
            array = open_raw(self.place(name), storage_dtype(entry.dtype), entry.shape)
            if isinstance(array, np.memmap):
                array.held = self.held  # type: ignore[attr-defined] # its path is good as long as that is open
            self.arrays[name] = array
        if self.verify:
            self.arrays[name] = verified(self.arrays[name], self.verifier(name))
        return self.arrays[name]

    def read(self, name: str, begin: int = 0, end: int | None = None) -> AnyArray:
        """Return entries [begin, end) of a file along its first axis, verified. Cost: reads whole blocks of 64 MiB."""
        verifier, entry = self.verifier(name), self.files[name]
        dtype, shape = storage_dtype(entry.dtype), entry.shape
        row, end = dtype.itemsize * math.prod(shape[1:]), shape[0] if end is None else end
        return verifier.read_range(begin * row, end * row).view(dtype).reshape(end - begin, *shape[1:])

    def read_bytes(self, name: str, begin: int, end: int) -> Bytes:
        """Return bytes [begin, end) of a file, or of an external one, verified where its blocks are known."""
        return self.verifier(name).read_range(begin, end)  # for its time the manifest holds the file

    @property
    def changes(self) -> dict[str, Any]:
        """The body's ``changes``, with ``ignored_files``: those that the file `UNREAD` names."""
        changes: dict[str, Any] = self.body["changes"]
        if self.held is None or not self.held.open(UNREAD):
            return changes
        return {**changes, "ignored_files": os.fsdecode(self.held.read(UNREAD)).split("\0")}

    def place(self, name: str) -> str:
        """Return a path that opens a file, inside or external, whatever has become of its own path."""
        path = name if name in self.files or name not in self.external else self.external[name].path
        return str(self.path / path) if self.held is None else self.held.place(path)

    def verifier(self, name: str) -> Verifier:
        """Return the verifier of the file `name`, or of an external file; one is shared by all its readers."""
        if name not in self.verifiers:
            entry = self.files.get(name) or self.external.get(name)
            if entry is None:
                raise FormatError(f"{self.path}: the manifest names no file {name}; make the artifact again")
            path = self.path / name if isinstance(entry, FileEntry) else entry.path
            self.verifiers[name] = Verifier(path, self.place(name), entry.bytes, entry.digest, self.blocks(name))
        return self.verifiers[name]

    def blocks(self, name: str) -> bytes | None:
        """Return the digests of the blocks of a file, inside or external; ``None`` where they are not recorded."""
        entry, blocks = self.files.get(name) or self.external[name], self._recorded_blocks().get(name)
        if blocks is not None and combine_digests(blocks) != entry.digest:
            raise FormatError(
                f"{self.path / CHECKSUMS}: the digests of {name} do not match its checksum {entry.digest}: the file is "
                "damaged; make the artifact again"
            )
        return blocks

    def checksums(self) -> bytes:
        """Return the content of the file `CHECKSUMS`: digests of the blocks of every file, then of external ones."""
        unknown = [name for name, entry in self._hashed_files() if entry.blocks is None]
        if unknown:
            raise InternalError(f"{self.path}: {unknown[0]} was written without digests of its blocks")
        return b"".join(entry.blocks or b"" for _, entry in self._hashed_files())

    def _hashed_files(self) -> Iterator[tuple[str, FileEntry | External]]:
        """Yield the files with digests of their blocks, in the order of `CHECKSUMS`."""
        yield from ((name, self.files[name]) for name in sorted(self.files) if name != CHECKSUMS)
        yield from ((name, self.external[name]) for name in sorted(self.external) if self.external[name].whole)

    def _recorded_blocks(self) -> dict[str, bytes]:
        if CHECKSUMS not in self.files:
            return {}
        with storage_errors(self.path / CHECKSUMS):
            data, at, digests = self._content(CHECKSUMS), 0, {}
        for name, entry in self._hashed_files():
            end = at + DIGEST_BYTES * num_blocks(entry.bytes)
            digests[name], at = data[at:end], end
        return digests

    def _content(self, name: str) -> bytes:
        if self.held is None or self.held.open(name) is None:
            return Path(self.place(name)).read_bytes()
        return self.held.read(name)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON document without its checksum."""
        return {
            "format": f"tiering.{self.kind}",
            "version": f"{self.version[0]}.{self.version[1]}",
            "requires": list(self.requires),
            "provenance": self.provenance,
            "files": {
                name: {"dtype": file.dtype, "shape": list(file.shape), "bytes": file.bytes, "checksum": file.checksum}
                for name, file in self.files.items()
            },
            "parts": self.parts,
            "external": {
                name: {"path": str(file.path), "bytes": file.bytes, "digest": file.digest}
                for name, file in self.external.items()
            },
            "body": self.body,
        }


class MappedArrays(UserDict[str, Any]):
    """Arrays by name, each mapped when it is looked up; made of the names of their files."""

    def __init__(self, manifest: Manifest, files: dict[str, str]) -> None:
        super().__init__(files)
        self._manifest = manifest

    def __getitem__(self, name: str) -> AnyArray:
        return self._manifest.array(self.data[name])


def verified(array: AnyArray, verifier: Verifier) -> AnyArray:
    """Verify a mapped file now if it fits memory, else leave that to the readers that stream it; return the map."""
    verifier.read = True
    if not verifier.done:
        if verifier.nbytes <= available_memory() // 2:
            whole = array if array.nbytes == verifier.nbytes else np.memmap(verifier.place, np.uint8, "r")
            verifier.finalize(whole.reshape(-1).view(np.uint8).data)  # mapped: nothing has to be copied
        elif isinstance(array, np.memmap):
            array.verifier = verifier  # type: ignore[attr-defined]
    return array


@dataclass(frozen=True)
class Problem:
    """One thing wrong with an artifact, `where`: a file, or a place such as ``manifest.json: relations.0``."""

    where: str
    message: str
    kind: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message} [{self.kind}]"

    def inside(self, part: str) -> Problem:
        """Return the problem of a nested artifact as one of the artifact around it."""
        return replace(self, where=f"{part}/{self.where}")


class InvalidArtifactError(FormatError):
    """An artifact with problems."""

    def __init__(self, message: str, problems: Sequence[Problem] = ()) -> None:
        super().__init__(message)
        self.problems = list(problems)


def raise_problems(path: Path, problems: list[Problem]) -> None:
    """Raise one `FormatError` naming all `problems`, if there are any."""
    if [problem.kind for problem in problems] == ["kind"]:
        raise InvalidArtifactError(f"{path}: {problems[0].message}", problems)
    if problems:
        lines = "; ".join(map(str, problems[:5]))
        more = f" (and {len(problems) - 5} more)" if len(problems) > 5 else ""
        raise InvalidArtifactError(
            f"{path}: not a valid artifact: {lines}{more}; run `tiering check {path} --full` for all problems, "
            "then make the artifact again",
            problems,
        )


def error_problems(error: Exception) -> list[Problem]:
    """Return the problems of an artifact that `error` tells of."""
    if isinstance(error, InvalidArtifactError):
        return error.problems
    return [Problem("manifest.json", str(error), "json" if isinstance(error, FormatError) else "missing")]


def body_problem(where: str, message: str, kind: str = "value") -> Problem:
    """Return a problem of the manifest, at `where` in its document."""
    return Problem(f"manifest.json: {where}", message, kind)


def mismatch(where: str, expected: object, found: object, kind: str = "value") -> Problem:
    """Return the problem of a value in the manifest at `where`."""
    return body_problem(where, f"expected {expected}, found {found}", kind)


def array_problems(
    manifest: Manifest, name: str, shape: tuple[int, ...] | None = None, dtypes: Sequence[str] = ()
) -> list[Problem]:
    """Return the problem of an array without an entry, or of another `shape` (a prefix), axes or dtype."""
    entry = manifest.files.get(name)
    if entry is None:
        return [body_problem(f"files.{name}", "the file is not listed")]
    if shape is not None and entry.shape[: len(shape)] != shape:
        return [Problem(name, f"expected shape {shape}, found {entry.shape}", "size")]
    if dtypes and len(entry.shape) != 1:
        return [Problem(name, f"expected one axis, found shape {entry.shape}", "size")]
    if dtypes and entry.dtype not in dtypes:
        return [Problem(name, f"expected dtype {' or '.join(dtypes)}, found {entry.dtype}", "value")]
    return []


def range_problems(where: str, what: str, values: AnyArray, least: int, end: int) -> Iterator[Problem]:
    """Yield the problem of values that are not all in [least, end)."""
    if values.size and not least <= values.min() <= values.max() < end:
        message = f"expected {what}{least} .. {end - 1}, found {values.min()} .. {values.max()}"
        yield Problem(where, message, "value")
