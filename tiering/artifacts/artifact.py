"""An artifact on disk: open it, validate it in levels, say what was compared."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

from tiering.artifacts.checksum import SAMPLE_BYTES, SAMPLES, num_blocks, sampled_digest
from tiering.artifacts.document import (
    MANIFEST,
    document_problems,
    open_directory,
    parse_document,
    read_document,
)
from tiering.artifacts.held import HeldDirectory
from tiering.artifacts.manifest import CHECKSUMS, External, Manifest
from tiering.artifacts.problems import Problem, raise_problems
from tiering.artifacts.storage import storage_errors, unless_replaced
from tiering.description import Described, Fields, Part
from tiering.errors import FormatError, InternalError, MissingError, StorageError
from tiering.units import format_bytes

LEVELS = ("header", "structure", "full")
"""Validation levels: header O(1), structure O(nodes), full O(edges) with checksums."""

_SHOWN = 3
"""Damaged blocks that a problem names."""
_PIECE = 8 * 1024 * 1024

Self = TypeVar("Self", bound="Artifact")


class Artifact(Described):
    """Base of the artifact types: a directory whose manifest passed its schema and whose files have their sizes.

    An open artifact is a snapshot: its files, and those of the artifacts nested in it, are held open from `open` on.
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
        return self.manifest.path

    @property
    def digest(self) -> str:
        """Digest of the manifest; two artifacts with equal digests have equal content."""
        return self.manifest.digest

    @classmethod
    def open(cls: type[Self], path: str | os.PathLike[str]) -> Self:
        """Open the artifact at `path`, checked at level ``header``. Cost: reads the manifest, opens each file.

        `MissingError`: there is nothing, or no manifest. `FormatError`: it is another kind of artifact, damaged, or of
        a version this package cannot read. `BusyError`: it is replaced whenever it is opened.
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
        """Whether a nested artifact is not whole, which matters to whoever needs it."""
        return any(part._header_problems() or part._lacks_files() for part in self._nested.values())

    @classmethod
    def _load(cls: type[Self], held: HeldDirectory) -> Self | list[Problem]:
        """The artifact in a directory, all its files held; what is wrong with the manifest if it cannot be used."""
        document, data = read_document(held)
        if problems := document_problems(document, cls.kind, data):
            return problems
        artifact = cls(parse_document(held, document, data))
        for name in artifact.manifest.files:
            artifact._hold(held, name)
        for external in artifact.manifest.external.values():
            artifact._hold(held, external.path)
        for name in artifact.manifest.parts:
            artifact._load_part(held, name)
        return artifact

    def _hold(self, held: HeldDirectory, name: str | Path) -> None:
        try:
            held.hold(name)
        except OSError as error:
            # Another kind of file, or one that may not be read, matters to whoever needs it; a failing disk to all.
            if error.errno not in (errno.EINVAL, errno.EACCES, errno.EPERM):
                raise StorageError(error.errno, f"{self.path / name}: {error.strerror}") from error
            self._unreadable.append(Problem(str(name), str(error.strerror), "missing"))

    def _load_part(self, held: HeldDirectory, name: str) -> None:
        if name not in self.part_types:
            self._damaged.append(Problem(f"manifest.json: parts.{name}", f"a {self.kind} has no such part", "value"))
            return
        try:
            part = self.part_types[name]._load(open_directory(self.path / name, held))
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
        """Compare what is read from now on with its checksums, here and in nested artifacts; see `finish_reads`."""
        self.manifest.verify = on
        for part in self._nested.values():
            part.verify_reads(on)

    def finish_reads(self, prefix: str | None = None) -> None:
        """Compare what is left of every file that was read since `verify_reads`: call before results are published.

        Files whose name begins with `prefix` are compared whether they were read or not. Cost: reads the blocks that
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
        self, level: str = "header", threads: int = 1, sample: float = 1.0, coverage: Coverage | None = None
    ) -> list[Problem]:
        """Every problem found at `level` (one of `LEVELS`; each includes the ones before).

        `sample`: at level ``full``, share of the blocks of each file that is read and compared, at least one.
        `coverage` is told what was compared with what.
        """
        problems = self._header_problems()
        if problems or level == "header":
            return problems
        problems += self._structure_problems(threads)
        if level == "full":
            coverage = coverage or Coverage()
            names = [*self.manifest.files, *(n for n, external in self.manifest.external.items() if external.whole)]
            for name in names:
                problems += coverage.compare(self.manifest, name, threads, sample)
            for name, external in self.manifest.external.items():
                if not external.whole:
                    problems += coverage.compare_samples(name, external, sample >= 1)
            if not problems and sample >= 1:
                problems += self._content_problems(threads)
        for name, part in self._nested.items():
            inside = part.problems(level, threads, sample, coverage)
            problems += [Problem(f"{name}/{p.where}", p.message, p.kind) for p in inside]
        return problems

    @classmethod
    def check(
        cls,
        path: Path,
        level: str = "structure",
        threads: int = 1,
        sample: float = 1.0,
        coverage: Coverage | None = None,
    ) -> list[Problem]:
        """Every problem of the artifact at `path`, which may be too damaged to open."""
        with suppress(FormatError, MissingError, StorageError):
            return cls.open(path).problems(level, threads, sample, coverage)
        try:
            artifact = cls._load(open_directory(path))
        except FormatError as error:
            return [Problem(MANIFEST, str(error), "json")]
        except (MissingError, StorageError) as error:
            return [Problem(MANIFEST, str(error), "missing")]
        return artifact.problems(level, threads, sample, coverage) if isinstance(artifact, Artifact) else artifact

    def parts(self) -> Mapping[str, Artifact]:
        return dict(self._nested)

    def part(self, name: str) -> Artifact | None:
        """A nested artifact, its header checked; ``None`` if there is none of that name."""
        part = self._nested.get(name)
        if part is not None and name not in self._sound:
            raise_problems(part.path, part._header_problems())
            self._sound.add(name)
        return part

    def _listed(self, node_type: str | None, types: list[str], what: str) -> str:
        """A node type out of `types`, the only one if none is named; `MissingError` otherwise."""
        if node_type is None and len(types) == 1:
            return types[0]
        if node_type not in types:
            raise MissingError(f"{self.path}: no {what} for node type {node_type!r}; types: {', '.join(types)}")
        return node_type

    def _header_problems(self) -> list[Problem]:
        problems, held = [*self._unreadable, *self._damaged], cast("HeldDirectory", self.manifest.held)
        unreadable = {problem.where for problem in problems}
        for name, entry in self.manifest.files.items():
            if name in unreadable:
                continue
            size = held.hold(name)
            if size is None:
                problems.append(Problem(name, f"the file does not exist (expected {entry.bytes} bytes)", "missing"))
            elif size != entry.bytes:
                problems.append(Problem(name, f"expected {entry.bytes} bytes, found {size}", "size"))
        for name, external in self.manifest.external.items():
            size = None if str(external.path) in unreadable else held.hold(external.path)
            message = f"expected {external.bytes} bytes, found {size}"
            if size is None:
                message = "the file does not exist (moved? then make the artifact again)"
            if size != external.bytes and str(external.path) not in unreadable:
                problems.append(Problem(f"external {name}: {external.path}", message, "external"))
        return problems or self._body_problems()

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

    def describe(self) -> list[Part]:
        """What it is, for people: where it lies, what made it, and what is in it."""
        summary = self.summary()
        provenance = summary["provenance"]
        made = [str(provenance[key]) for key in ("stage", "package") if provenance.get(key)]
        made += [] if provenance.get("seed") is None else [f"seed {provenance['seed']}"]
        size = format_bytes(summary["bytes"])
        about = {self.kind: summary["path"], "made by": ", ".join(made), "size": size, "digest": summary["digest"]}
        return [Fields(about), *self._describe_content(summary)]

    def _describe_content(self, summary: Mapping[str, Any]) -> list[Part]:
        """What is in it, from its `summary`."""
        return []

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path}>"


@dataclass
class Coverage:
    """Bytes that were looked at."""

    compared: int = 0
    """Bytes that were read and compared with a checksum."""
    known: int = 0
    """Bytes that have one."""
    samples: list[str] = field(default_factory=list)
    """Files of which only samples were recorded, and were compared."""

    def to_json(self) -> dict[str, Any]:
        return {"compared": self.compared, "known": self.known, "samples": self.samples}

    def compare(self, manifest: Manifest, name: str, threads: int, sample: float) -> list[Problem]:
        """Compare a file with its checksums: all blocks, or a share of them drawn at random."""
        try:
            verifier = manifest.verifier(name)
        except FormatError as error:
            return [Problem(CHECKSUMS, str(error), "checksum")]
        count = num_blocks(verifier.nbytes)
        wanted = range(count) if sample >= 1 else random.sample(range(count), min(count, max(1, round(sample * count))))
        where = name if name in manifest.files else f"external {name}: {verifier.path}"
        try:
            wrong = verifier.damaged(wanted, threads)
        except StorageError as error:
            return [Problem(where, str(error), "external")]
        self.known += verifier.nbytes
        self.compared += sum(end - begin for begin, end in map(verifier.span, wanted))
        if not wrong:
            return []
        places = ", ".join(verifier.describe(block) for block in wrong[:_SHOWN])
        more = f" and {len(wrong) - _SHOWN} more places" if len(wrong) > _SHOWN else ""
        return [Problem(where, f"content changed: {places}{more} are not what was written", "checksum")]

    def compare_samples(self, name: str, external: External, whole: bool) -> list[Problem]:
        """Compare the samples of a file of the user's; if `whole`, read all of it: what the disk has lost shows."""
        where = f"external {name}: {external.path}"
        try:
            with storage_errors(external.path), external.path.open("rb", buffering=0) as file:
                while whole and file.read(_PIECE):
                    pass
                digest = sampled_digest(external.path)
        except StorageError as error:
            return [Problem(where, str(error), "external")]
        if external.bytes <= SAMPLES * SAMPLE_BYTES:
            self.known, self.compared = self.known + external.bytes, self.compared + external.bytes
        else:
            self.samples.append(f"{external.path} ({'read whole' if whole else 'not read whole'})")
        if digest == external.digest:
            return []
        return [Problem(where, f"content changed: expected {external.digest}, found {digest}", "checksum")]

    def __str__(self) -> str:
        told = f"{format_bytes(self.compared)} of {format_bytes(self.known)} compared with checksums"
        if self.samples:
            told += f"; known by 64 samples alone, which were compared: {', '.join(self.samples)}"
        return told
