"""An artifact on disk: opening, and validation in levels."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

from tiering.artifacts.document import (
    MANIFEST,
    document_problems,
    parse_document,
    read_document,
)
from tiering.artifacts.manifest import Manifest
from tiering.artifacts.open_directory import OpenDirectory, open_directory
from tiering.artifacts.problems import Problem, raise_problems
from tiering.artifacts.storage import unless_replaced
from tiering.artifacts.verify_report import VerifyReport
from tiering.description import Described, Fields, Part
from tiering.errors import FormatError, InternalError, MissingError, StorageError
from tiering.units import format_bytes

LEVELS = ("header", "structure", "full")
"""Validation levels: header O(1), structure O(nodes), full O(edges) with checksums."""

Self = TypeVar("Self", bound="Artifact")


class Artifact(Described):
    """Base of the artifact types: a directory whose manifest passed its schema and whose files have their sizes.

    An open artifact is a snapshot: its files, and those of nested artifacts, stay open.
    """

    kind: ClassVar[str]
    part_types: ClassVar[Mapping[str, type[Artifact]]] = {}

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self._nested: dict[str, Artifact] = {}
        self._unreadable: list[Problem] = []
        self._damaged: list[Problem] = []  # of manifests of nested artifacts
        self._sound: set[str] = set()

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
        """Open the artifact at `path`, checked at level ``header``. Cost: reads the manifest, opens each file.

        `MissingError`: there is no manifest. `FormatError`: the artifact is of another kind, damaged, or of a version
        this package cannot read. `BusyError`: it is replaced whenever it is opened.
        """
        where = Path(path)

        def read() -> Self:
            artifact = cls._load(open_directory(where))
            if isinstance(artifact, Artifact):
                raise_problems(where, artifact._header_problems())
                return artifact
            raise_problems(where, artifact)
            raise InternalError(f"{where}: neither opened nor refused")

        return unless_replaced(where, read, lambda artifact: artifact._lacks_files())

    def _lacks_files(self) -> bool:
        """Return whether a nested artifact is not whole."""
        return any(part._header_problems() or part._lacks_files() for part in self._nested.values())

    @classmethod
    def _load(cls: type[Self], directory: OpenDirectory) -> Self | list[Problem]:
        """Return the artifact in a directory with all its files open, or the problems of its manifest."""
        document, data = read_document(directory)
        if problems := document_problems(document, cls.kind, data):
            return problems
        artifact = cls(parse_document(directory, document, data))
        for name in artifact.manifest.files:
            artifact._open_file(directory, name)
        for external in artifact.manifest.external.values():
            artifact._open_file(directory, external.path)
        for name in artifact.manifest.parts:
            artifact._load_part(directory, name)
        return artifact

    def _open_file(self, directory: OpenDirectory, name: str | Path) -> None:
        try:
            directory.open(name)
        except OSError as error:
            # Another kind of file, or one that may not be read, is a problem found later; a failing disk is an error.
            if error.errno not in (errno.EINVAL, errno.EACCES, errno.EPERM):
                raise StorageError(error.errno, f"{self.path / name}: {error.strerror}") from error
            self._unreadable.append(Problem(str(name), str(error.strerror), "missing"))

    def _load_part(self, directory: OpenDirectory, name: str) -> None:
        if name not in self.part_types:
            self._damaged.append(Problem(f"manifest.json: parts.{name}", f"a {self.kind} has no such part", "value"))
            return
        try:
            part = self.part_types[name]._load(open_directory(self.path / name, directory))
        except (FormatError, MissingError) as error:
            part = [Problem(MANIFEST, str(error), "missing" if isinstance(error, MissingError) else "json")]
        if not isinstance(part, Artifact):
            self._damaged += [Problem(f"{name}/{p.where}", p.message, p.kind) for p in part]
            return
        self._nested[name] = part
        if part.digest != self.manifest.parts[name]:
            message = "the nested artifact's manifest changed after it was recorded"
            self._damaged.append(Problem(name, message, "checksum"))
        self._damaged += [Problem(f"{name}/{p.where}", p.message, p.kind) for p in part._damaged]

    def verify_reads(self, on: bool = True) -> None:
        """Verify what is read from now on, here and in nested artifacts; see `finish_reads`."""
        self.manifest.verify = on
        for part in self._nested.values():
            part.verify_reads(on)

    def finish_reads(self, prefix: str | None = None) -> None:
        """Verify the rest of every file that was read since `verify_reads`; call this before results are published.

        Files whose name begins with `prefix` are verified even if they were not read. Cost: reads the blocks that
        nobody has read; 1 MiB of memory for each thread.
        """
        for name, part in self._nested.items():
            if prefix is not None and part.manifest.verify and any(f.startswith(prefix) for f in part.manifest.files):
                self.part(name)  # refuses one that lacks files
            part.finish_reads(prefix)
        if self.manifest.verify:
            for name in self.manifest.files:
                if prefix is not None and name.startswith(prefix):
                    self.manifest.verifier(name).read = True
            for verifier in self.manifest.verifiers.values():
                if verifier.read:
                    verifier.finalize()

    def problems(
        self, level: str = "header", threads: int = 1, sample: float = 1.0, report: VerifyReport | None = None
    ) -> list[Problem]:
        """Return every problem found at `level` (one of `LEVELS`; each includes the ones before).

        `sample`: at level ``full``, the fraction of the blocks of each file that is verified, at least one. `report`
        receives what was compared.
        """
        problems = self._header_problems()
        if problems or level == "header":
            return problems
        problems += self._structure_problems(threads)
        if level == "full":
            report = report or VerifyReport()
            names = [*self.manifest.files, *(n for n, external in self.manifest.external.items() if external.whole)]
            for name in names:
                problems += report.compare(self.manifest, name, threads, sample)
            for name, external in self.manifest.external.items():
                if not external.whole:
                    problems += report.compare_samples(name, external, sample >= 1)
            if not problems and sample >= 1:
                problems += self._content_problems(threads)
        for name, part in self._nested.items():
            inside = part.problems(level, threads, sample, report)
            problems += [Problem(f"{name}/{p.where}", p.message, p.kind) for p in inside]
        return problems

    @classmethod
    def check(
        cls,
        path: Path,
        level: str = "structure",
        threads: int = 1,
        sample: float = 1.0,
        report: VerifyReport | None = None,
    ) -> list[Problem]:
        """Return every problem of the artifact at `path`, which may be too damaged to open."""
        with suppress(FormatError, MissingError, StorageError):
            return cls.open(path).problems(level, threads, sample, report)
        try:
            artifact = cls._load(open_directory(path))
        except FormatError as error:
            return [Problem(MANIFEST, str(error), "json")]
        except (MissingError, StorageError) as error:
            return [Problem(MANIFEST, str(error), "missing")]
        return artifact.problems(level, threads, sample, report) if isinstance(artifact, Artifact) else artifact

    def parts(self) -> Mapping[str, Artifact]:
        """Return the nested artifacts by name."""
        return dict(self._nested)

    def part(self, name: str) -> Artifact | None:
        """Return a nested artifact, its header checked; ``None`` if there is none of that name."""
        part = self._nested.get(name)
        if part is not None and name not in self._sound:
            raise_problems(part.path, part._header_problems())
            self._sound.add(name)
        return part

    def _listed(self, node_type: str | None, types: list[str], what: str) -> str:
        """Return a node type out of `types`, the only one if none is named; `MissingError` otherwise."""
        if node_type is None and len(types) == 1:
            return types[0]
        if node_type not in types:
            raise MissingError(f"{self.path}: no {what} for node type {node_type!r}; types: {', '.join(types)}")
        return node_type

    def _header_problems(self) -> list[Problem]:
        problems, directory = [*self._unreadable, *self._damaged], cast("OpenDirectory", self.manifest.held)
        unreadable = {problem.where for problem in problems}
        for name, entry in self.manifest.files.items():
            if name in unreadable:
                continue
            size = directory.open(name)
            if size is None:
                problems.append(Problem(name, f"the file does not exist (expected {entry.bytes} bytes)", "missing"))
            elif size != entry.bytes:
                problems.append(Problem(name, f"expected {entry.bytes} bytes, found {size}", "size"))
        for name, external in self.manifest.external.items():
            size = None if str(external.path) in unreadable else directory.open(external.path)
            message = f"expected {external.bytes} bytes, found {size}"
            if size is None:
                message = "the file does not exist (moved? then make the artifact again)"
            if size != external.bytes and str(external.path) not in unreadable:
                problems.append(Problem(f"external {name}: {external.path}", message, "external"))
        return problems or self._body_problems()

    def _body_problems(self) -> list[Problem]:
        """Return problems of the body that the schema cannot see: missing names, numbers that disagree. O(1)."""
        return []

    def _structure_problems(self, threads: int) -> list[Problem]:
        """Return problems of the content found in O(nodes)."""
        return []

    def _content_problems(self, threads: int) -> list[Problem]:
        """Return problems of the content found in O(edges); called only where there are no others."""
        return []

    def summary(self) -> dict[str, Any]:
        """Return what `tiering info` prints: kind, sizes, provenance; JSON types only."""
        return {
            "kind": self.kind,
            "path": str(self.path),
            "version": f"{self.manifest.version[0]}.{self.manifest.version[1]}",
            "digest": self.digest,
            "bytes": sum(entry.bytes for entry in self.manifest.files.values()),
            "provenance": self.manifest.provenance,
        }

    def describe(self) -> list[Part]:
        """Describe the artifact to people: its path, what made it, its content."""
        summary = self.summary()
        provenance = summary["provenance"]
        made = [str(provenance[key]) for key in ("stage", "package") if provenance.get(key)]
        made += [] if provenance.get("seed") is None else [f"seed {provenance['seed']}"]
        size = format_bytes(summary["bytes"])
        about = {self.kind: summary["path"], "made by": ", ".join(made), "size": size, "digest": summary["digest"]}
        return [Fields(about), *self._describe_content(summary)]

    def _describe_content(self, summary: Mapping[str, Any]) -> list[Part]:
        """Return the parts of `describe` about the content."""
        return []

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path}>"
