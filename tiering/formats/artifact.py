"""An artifact on disk: open it, validate it in levels, write a new one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, TypeVar

import numpy as np

from tiering.errors import FormatError, InputError, InternalError, MissingError
from tiering.formats.manifest import (
    MANIFEST,
    External,
    FileEntry,
    Manifest,
    document_problems,
    parse_document,
    read_document,
    storage_dtype,
    written_version,
)
from tiering.formats.problems import Problem, raise_problems
from tiering.io.appended import AppendedFile
from tiering.io.atomic import OutputDirectory, link_or_copy
from tiering.io.blocks import BlockFile
from tiering.io.checksum import checksum_file, digest_bytes
from tiering.io.journal import JOURNAL, Journal
from tiering.io.storage import RawWriter, storage_errors
from tiering.version import __version__

LEVELS = ("header", "structure", "full")
"""Validation levels: header O(1), structure O(nodes), full O(edges) with checksums."""

Self = TypeVar("Self", bound="Artifact")


class Artifact:
    """Base of the artifact types: a directory whose manifest passed its schema and whose files have their sizes."""

    kind: ClassVar[str]
    part_types: ClassVar[Mapping[str, type[Artifact]]] = {}
    """Nested artifacts the kind may have, by name."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest

    @property
    def path(self) -> Path:
        """Directory of the artifact."""
        return self.manifest.path

    @property
    def digest(self) -> str:
        """Digest of the manifest; two artifacts with equal digests have equal content."""
        return self.manifest.digest

    @classmethod
    def open(cls: type[Self], path: str | os.PathLike[str]) -> Self:
        """Open the artifact at `path`, checked at level ``header``. Cost: reads the manifest, stats each file.

        Raises
        ------
        MissingError
            If there is nothing, or no manifest, at `path`.
        FormatError
            If it is another kind of artifact, damaged, or of a version this package cannot read.
        """
        where = Path(path)
        document, data = read_document(where)
        raise_problems(where, document_problems(document, cls.kind))
        artifact = cls(parse_document(where, document, data))
        raise_problems(where, artifact._header_problems())
        return artifact

    def problems(self, level: str = "header", threads: int = 1) -> list[Problem]:
        """Every problem found at `level` (one of `LEVELS`; each includes the ones before)."""
        found = self._header_problems()
        if found or level == "header":
            return found
        found += self._structure_problems(threads)
        if level == "full":
            found += self._checksum_problems(threads)
            for name, external in self.manifest.external.items():
                found += external.problems(name, full=True)
            if not found:
                found += self._content_problems(threads)
        for name in self.manifest.parts:
            part = self.part_types[name].check(self.path / name, level, threads)
            found += [Problem(f"{name}/{p.where}", p.message, p.kind) for p in part]
        return found

    @classmethod
    def check(cls, path: Path, level: str = "structure", threads: int = 1) -> list[Problem]:
        """Every problem of the artifact at `path`, which may be too damaged to open."""
        try:
            document, data = read_document(path)
        except FormatError as error:
            return [Problem(MANIFEST, str(error), "json")]
        except MissingError as error:
            return [Problem(MANIFEST, str(error), "missing")]
        found = document_problems(document, cls.kind)
        return found or cls(parse_document(path, document, data)).problems(level, threads)

    def parts(self) -> Mapping[str, Artifact]:
        """Nested artifacts by name."""
        return {}

    def _header_problems(self) -> list[Problem]:
        found = []
        for name, entry in self.manifest.files.items():
            file = self.path / name
            if not file.is_file():
                found.append(Problem(name, f"the file does not exist (expected {entry.bytes} bytes)", "missing"))
            elif file.stat().st_size != entry.bytes:
                message = f"expected {entry.bytes} bytes, found {file.stat().st_size}"
                found.append(Problem(name, message, "size"))
        for name, digest in self.manifest.parts.items():
            file = self.path / name / MANIFEST
            if name not in self.part_types:
                found.append(Problem(f"manifest.json: parts.{name}", f"a {self.kind} has no such part", "value"))
            elif not file.is_file():
                found.append(Problem(name, f"the nested artifact has no {MANIFEST}", "missing"))
            elif digest_bytes(_bytes_of(file)) != digest:
                found.append(Problem(name, "the nested artifact's manifest changed after it was recorded", "checksum"))
        for name, external in self.manifest.external.items():
            found += external.problems(name, full=False)
        return found or self._body_problems()

    def _checksum_problems(self, threads: int) -> list[Problem]:
        found = []
        for name, entry in self.manifest.files.items():
            actual = checksum_file(self.path / name, threads)
            if actual != entry.checksum:
                message = f"content changed: expected {entry.checksum}, found {actual}"
                found.append(Problem(name, message, "checksum"))
        return found

    def _body_problems(self) -> list[Problem]:
        """What the schema cannot say about the body: names that must exist, numbers that must agree. O(1)."""
        return []

    def _structure_problems(self, threads: int) -> list[Problem]:
        """O(nodes) checks of the content."""
        return []

    def _content_problems(self, threads: int) -> list[Problem]:
        """O(edges) checks of the content; runs only where nothing else was wrong."""
        return []

    def summary(self) -> dict[str, Any]:
        """What `tiering info` prints: kind, sizes, provenance; JSON types only."""
        return {
            "kind": self.kind,
            "path": str(self.path),
            "version": f"{self.manifest.version[0]}.{self.manifest.version[1]}",
            "digest": self.digest,
            "bytes": sum(entry.bytes for entry in self.manifest.files.values()),
            "provenance": self.manifest.provenance,
        }

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path}>"


class ArtifactWriter:
    """Writes one artifact: files first, the manifest last, the rename at the end.

    Use as a context manager; leaving it without `commit` (an error, Ctrl-C) removes everything written. With an
    `identity`, files that were finished stay for the next run of the same command, unless the error is the input's:
    ask `has` before a file is made once more.

    Parameters
    ----------
    out
        Directory to create.
    kind
        One of `tiering.formats.manifest.KINDS`.
    force
        Replace an existing directory.
    identity
        What is computed from what; see `tiering.io.atomic.OutputDirectory`.
    """

    def __init__(
        self,
        out: str | os.PathLike[str],
        kind: str,
        *,
        force: bool = False,
        identity: Mapping[str, Any] | None = None,
        parent: ArtifactWriter | None = None,
    ) -> None:
        self.kind, self._parent = kind, parent
        self._files: dict[str, FileEntry] = {}
        self._parts: dict[str, str] = {}
        self.external: dict[str, External] = {}
        """Files outside the artifact to refer to, by name."""
        self._output: OutputDirectory | None = None
        if parent is None:
            self._output = OutputDirectory(out, force=force, identity=identity)
            self.path, self.out = self._output.path, self._output.out
            self.journal: Journal | None = self._output.journal
            """Journal of a run that can be resumed; else ``None``."""
            self.prefix = ""
        else:
            self.path, self.out = parent.path / out, parent.out / out
            self.journal, self.prefix = parent.journal, f"{parent.prefix}{out}/"
            with storage_errors(self.path):
                self.path.mkdir(exist_ok=True)

    def part(self, name: str, kind: str) -> ArtifactWriter:
        """Begin a nested artifact in the subdirectory `name`; commit it before this one."""
        return ArtifactWriter(name, kind, parent=self)

    def put(self, name: str, array: np.ndarray[Any, Any], dtype: str | None = None) -> None:
        """Write a whole array as file `name`. Cost: one pass over its bytes."""
        declared = dtype or array.dtype.name
        with self.stream(name, declared, array.shape) as raw:
            raw.write(np.ascontiguousarray(array, storage_dtype(declared)))

    def stream(self, name: str, dtype: str, shape: tuple[int, ...]) -> StreamedFile:
        """Begin a file that is written front to back; use as a context manager, which records it at its end."""
        self._forget(name)
        return StreamedFile(self, name, dtype, tuple(int(extent) for extent in shape))

    def blocks(self, name: str, dtype: str, shape: tuple[int, ...]) -> AssembledFile:
        """Begin a large file whose blocks come in any order; use as a context manager, which records it at its end."""
        self._forget(name)
        return AssembledFile(self, name, dtype, tuple(int(extent) for extent in shape))

    def appended(self, name: str, dtype: str, shape: tuple[int, ...]) -> AppendedEntry:
        """Begin a large file that is written front to back, from where an earlier run stopped; as `blocks` else."""
        self._forget(name)
        return AppendedEntry(self, name, dtype, tuple(int(extent) for extent in shape))

    def _forget(self, name: str) -> None:
        """A file that is begun anew is not there, whatever an earlier run has recorded."""
        if self.journal is not None:
            self.journal.forget(f"file {self.prefix}{name}")

    def has(self, *names: str) -> bool:
        """Whether an earlier run of the same identity finished all these files; they are taken over then."""
        found = {}
        for name in names:
            facts = None if self.journal is None else self.journal.get(f"file {self.prefix}{name}")
            if facts is None:
                return False
            entry = FileEntry(facts["dtype"], tuple(facts["shape"]), facts["checksum"])
            file = self.path / name
            if not file.is_file() or file.stat().st_size != entry.bytes:
                return False
            found[name] = entry
        self._files.update(found)
        return True

    def required_journal(self) -> Journal:
        """The journal, for work that cannot do without."""
        if self.journal is None:
            raise InternalError(f"{self.out}: written without an identity")
        return self.journal

    def adopt(self, artifact: Artifact, name: str) -> None:
        """Take a finished artifact in as part `name`: its files are hard-linked where possible, else copied."""
        _copy_part(artifact, self.path / name)
        self._parts[name] = artifact.digest

    def record(self, name: str, entry: FileEntry) -> None:
        """Record a file that was written under `path`, and synced, by other means."""
        self._files[name] = entry
        if self.journal is not None:
            self.journal.record(
                f"file {self.prefix}{name}", dtype=entry.dtype, shape=list(entry.shape), checksum=entry.checksum
            )

    def commit(self, body: dict[str, Any], provenance: dict[str, Any]) -> Manifest:
        """Write the manifest, validate the document, and rename the directory into place.

        Raises
        ------
        FormatError
            If what was written would not open: a bug in the caller, found before anything is replaced.
        """
        manifest = Manifest(
            self.path, self.kind, written_version(self.kind, body), self._files, self._parts, self.external,
            {"package": f"tiering {__version__}", **provenance}, body,
        )  # fmt: skip
        self._sweep()
        data = manifest.to_bytes()
        problems = document_problems(manifest.to_json(), self.kind)
        if problems:
            raise FormatError(f"{self.out}: the manifest to be written is invalid: {problems[0]}")
        file = self.path / MANIFEST
        with storage_errors(file, len(data)), file.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        manifest.digest = digest_bytes(data)
        if self._parent is not None:
            self._parent._parts[self.path.name] = manifest.digest
        if self._output is not None:
            self._output.commit()
            manifest.path = self.out
        return manifest

    def _sweep(self) -> None:
        """Remove what no manifest will list: scratch files of a killed run that this one has not needed again."""
        inside = [str(each.path) for each in self.external.values()]  # by a path from here
        known = {self.path / name for name in (*self._files, *inside, MANIFEST, JOURNAL)}
        parts = {self.path / name for name in self._parts}
        seen = []
        for folder, folders, names in os.walk(self.path):
            folders[:] = [name for name in folders if Path(folder, name) not in parts]
            seen.append(Path(folder))
            for name in names:
                if (file := Path(folder, name)) not in known:
                    file.unlink()
        for each in reversed(seen[1:]):
            if not any(each.iterdir()):
                each.rmdir()

    def __enter__(self) -> ArtifactWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        if self._output is None:
            return
        # Python's own errors are bugs: the next run is not to stumble over them at the same place.
        if isinstance(value, (KeyboardInterrupt, OSError, MemoryError)) and not isinstance(value, InputError):
            self._output.suspend()
        else:
            self._output.discard()


class StreamedFile(RawWriter):
    """A file of an artifact being written front to back; recorded in the manifest when the block ends well."""

    def __init__(self, owner: ArtifactWriter, name: str, dtype: str, shape: tuple[int, ...]) -> None:
        self._owner, self._name = owner, name
        self._entry = FileEntry(dtype, shape, "")
        super().__init__(owner.path / name, self._entry.bytes)

    def __enter__(self) -> StreamedFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        if kind is None:
            entry = FileEntry(self._entry.dtype, self._entry.shape, self.close())
            self._owner.record(self._name, entry)
        else:
            super().__exit__(kind, value, trace)


class AssembledFile(BlockFile):
    """A file of an artifact being written in blocks; recorded in the manifest when the block ends well."""

    def __init__(self, owner: ArtifactWriter, name: str, dtype: str, shape: tuple[int, ...]) -> None:
        self._owner, self._name = owner, name
        self._entry = FileEntry(dtype, shape, "")
        super().__init__(owner.path / name, self._entry.bytes, owner.journal, owner.prefix + name)

    def __enter__(self) -> AssembledFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        super().__exit__(kind, value, trace)
        if kind is None:
            self._owner.record(self._name, FileEntry(self._entry.dtype, self._entry.shape, self.checksum()))


class AppendedEntry(AppendedFile):
    """A file of an artifact being written front to back in blocks; recorded in the manifest as `AssembledFile` is."""

    def __init__(self, owner: ArtifactWriter, name: str, dtype: str, shape: tuple[int, ...]) -> None:
        self._owner, self._name = owner, name
        self._entry = FileEntry(dtype, shape, "")
        super().__init__(owner.path / name, self._entry.bytes, owner.journal, owner.prefix + name)

    def __enter__(self) -> AppendedEntry:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        super().__exit__(kind, value, trace)
        if kind is None:
            self._owner.record(self._name, FileEntry(self._entry.dtype, self._entry.shape, self.checksum()))


def _bytes_of(file: Path) -> bytes:
    with storage_errors(file):
        return file.read_bytes()


def _copy_part(artifact: Artifact, target: Path) -> None:
    for relative in artifact.manifest.files:
        link_or_copy(artifact.path / relative, target / relative)
    for name, part in artifact.parts().items():
        _copy_part(part, target / name)
    link_or_copy(artifact.path / MANIFEST, target / MANIFEST)
