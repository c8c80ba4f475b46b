"""An artifact on disk: opening, and validation in levels."""

from __future__ import annotations

import errno
import os
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

from tiering.artifacts.checksum import SAMPLE_BYTES, SAMPLES, num_blocks, sampled_digest
from tiering.artifacts.document import read_manifest
from tiering.artifacts.manifest import CHECKSUMS, External, Manifest, Problem, error_problems, raise_problems
from tiering.artifacts.overlap import lies_in
from tiering.artifacts.remote_directory import open_directory
from tiering.artifacts.storage import OpenDirectory, storage_errors
from tiering.errors import BusyError, FormatError, InputError, MissingError, StorageError
from tiering.text.arguments import is_url
from tiering.text.description import Described, Fields, Part
from tiering.text.units import format_bytes

Self = TypeVar("Self", bound="Artifact")
_SHOWN = 3  # damaged blocks that a problem names
_PIECE = 8 * 1024 * 1024


class Artifact(Described):
    """Base of the artifact types. An open one is a snapshot: its files and its nested artifacts' files stay open."""

    kind: ClassVar[str] = ""
    part_types: ClassVar[tuple[str, ...]] = ()  # kinds of nested artifacts, which are their names too
    relink: ClassVar[str] = "make the artifact again"  # what to do where files outside were moved
    complete: ClassVar[bool] = False  # whether files outside that nested artifacts refer to may be missing
    _types: ClassVar[dict[str, type[Artifact]]] = {}

    def __init_subclass__(cls) -> None:
        if "kind" in vars(cls):  # else a subclass of a kind, which opens itself
            Artifact._types[cls.kind] = cls

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self._nested: dict[str, Artifact] = {}
        self._unreadable: list[Problem] = []
        self._damaged: list[Problem] = []  # of manifests of nested artifacts
        self._sound: set[str] = set()
        self.needs_outside = True  # whether a missing file outside is a problem

    @property
    def path(self) -> Path:
        """Directory of the artifact."""
        return self.manifest.path

    @property
    def _directory(self) -> OpenDirectory:
        return cast("OpenDirectory", self.manifest.held)

    @property
    def digest(self) -> str:
        """Digest of the manifest; two artifacts with equal digests have equal content."""
        return self.manifest.digest

    @property
    def node_types(self) -> list[str]:
        """Node types of the content, in the graph's order."""
        return list(self.manifest.body["node_types"])

    @classmethod
    def open(cls: type[Self], path: str | os.PathLike[str], *, outside: bool = True) -> Self:
        """Open the artifact at `path`, checked at level ``header``. Cost: reads the manifest, opens each file.

        `outside`: files outside the artifact must exist; else a missing file is an error when it is read.
        """
        for pause in (0.0, 0.02, 0.1):  # a part may be of another version than what was read before
            time.sleep(pause)
            before = _inode_state(path)
            try:
                artifact = cls._load(open_directory(path))
                raise_problems(artifact.path, artifact._header_problems(outside))
                if before == _inode_state(path) or not artifact._lacks_files():
                    return artifact
            except (FormatError, MissingError):
                if before == _inode_state(path):
                    raise
        raise BusyError(f"{path}: is being replaced; open it again when the run that writes it has finished")

    def _lacks_files(self) -> bool:
        return any(part._header_problems() or part._lacks_files() for part in self._nested.values())

    @classmethod
    def _load(cls: type[Self], directory: OpenDirectory) -> Self:
        """Return the artifact in a directory with all its files open; `FormatError` for problems of its manifest."""
        manifest = read_manifest(directory, cls.kind or None)
        artifact = cast("Self", (cls if cls.kind else cls._types[manifest.kind])(manifest))
        for name in (*manifest.files, *(str(external.path) for external in manifest.external.values())):
            try:
                directory.open(name)
            except OSError as error:
                # Another kind of file, or one that may not be read, is a problem; a failing disk is an error.
                if error.errno not in (errno.EINVAL, errno.EACCES, errno.EPERM):
                    raise StorageError(error.errno, f"{manifest.path / name}: {error.strerror}") from error
                artifact._unreadable.append(Problem(name, str(error.strerror), "missing"))
        for name in manifest.parts:
            artifact._load_part(directory, name)
        return artifact

    def _load_part(self, directory: OpenDirectory, name: str) -> None:
        if name not in self.part_types:
            self._damaged.append(Problem(f"manifest.json: parts.{name}", f"a {self.kind} has no such part", "value"))
            return
        try:
            part = self._types[name]._load(directory.inside(name))
        except (FormatError, MissingError) as error:
            problems = error_problems(error)
        else:
            self._nested[name], problems = part, part._damaged
            if self.complete:
                part._spare_outside()
            if part.digest != self.manifest.parts[name]:
                message = "the nested artifact's manifest changed after it was recorded"
                self._damaged.append(Problem(name, message, "checksum"))
        self._damaged += [problem.inside(name) for problem in problems]

    def _spare_outside(self) -> None:
        self.needs_outside = False
        for part in self._nested.values():
            part._spare_outside()

    def verify_reads(self, on: bool = True) -> None:
        """Verify what is read from now on, here and in nested artifacts; see `finish_reads`."""
        self.manifest.verify = on
        for part in self._nested.values():
            part.verify_reads(on)

    def finish_reads(self, prefix: str | None = None) -> None:
        """Verify the rest of every file read since `verify_reads`, and of all whose name begins with `prefix`."""
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

    def problems(self, level: str = "header", report: VerifyReport | None = None) -> list[Problem]:
        """Return every problem found at `level` (each includes the ones before); `report` says how at ``full``."""
        problems, report = self._header_problems(), report or VerifyReport()
        if problems or level == "header":
            return problems
        problems += self._structure_problems()
        if level == "full":
            for name in self.manifest.files:
                problems += [found for found in report.compare(self.manifest, name) if found not in problems]
            for name, external in self.manifest.external.items():
                if not self.needs_outside and self._directory.open(external.path) is None:
                    continue
                whole = external.whole
                problems += report.compare(self.manifest, name) if whole else report.compare_samples(name, external)
            if not problems and report.sample >= 1:
                problems += self._content_problems(report.threads)
        for name, part in self._nested.items():
            problems += [problem.inside(name) for problem in part.problems(level, report)]
        return problems

    @classmethod
    def check(
        cls, path: str | os.PathLike[str], level: str = "structure", report: VerifyReport | None = None
    ) -> list[Problem]:
        """Return every problem of the artifact at `path`, which may be too damaged to open; see `problems`.

        Of an artifact at a URL, manifests and the sizes of files are checked.
        """
        if is_url(path):
            if level == "full":
                raise InputError("full: files of an object store are compared while they are copied: `tiering copy`")
            level = "header"
        try:
            try:
                artifact = cls.open(path)
            except FormatError:
                artifact = cls._load(open_directory(path))
            return artifact.problems(level, report)
        except (FormatError, StorageError) as error:
            return error_problems(error)

    def outside(self, *, dataset: bool = True) -> list[Path]:
        """Return the files outside that the artifact and its parts refer to, and the `dataset` in which they lie."""
        files = [external.path for external in self.manifest.external.values()]
        files += [file for part in self._nested.values() for file in part.outside(dataset=dataset)]
        source = Path(self.manifest.body.get("changes", {}).get("source", os.devnull))
        return [*files, source] if dataset and any(lies_in(file, source) for file in files) else files

    def total_bytes(self) -> int:
        """Return the bytes of all files, of nested artifacts, and of those outside that are needed."""
        outside = self.manifest.external.values() if self.needs_outside else ()
        own = [entry.bytes for entry in self.manifest.files.values()] + [entry.bytes for entry in outside]
        return sum(own) + sum(part.total_bytes() for part in self._nested.values())

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

    def _resolve_type(self, node_type: str | None) -> str:
        """Return a node type of the artifact, the only one if none is named; `MissingError` otherwise."""
        types = self.node_types
        if node_type is None and len(types) == 1:
            return types[0]
        if node_type not in types:
            problem = "give the node type" if node_type is None else f"no node type {node_type!r}"
            raise MissingError(f"{self.path}: {problem}; types: {', '.join(types)}")
        return node_type

    def _header_problems(self, outside: bool = True) -> list[Problem]:
        problems, directory = [*self._unreadable, *self._damaged], self._directory
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
            size = external.bytes if str(external.path) in unreadable else directory.open(external.path)
            if size != external.bytes and ((outside and self.needs_outside) or size is not None):
                missing = f"the file does not exist (if it was moved, {self.relink})"
                message = missing if size is None else f"expected {external.bytes} bytes, found {size}"
                problems.append(Problem(f"external {name}: {external.path}", message, "external"))
        return problems or list(self._body_problems())

    # What a kind knows: problems of the body in O(1), of the content in O(nodes), in O(edges) if there are no others.

    def _body_problems(self) -> Iterable[Problem]:
        return ()

    def _structure_problems(self) -> Iterable[Problem]:
        return ()

    def _content_problems(self, threads: int) -> Iterable[Problem]:
        return ()

    def _summarize_content(self) -> dict[str, Any]:
        raise NotImplementedError

    def _describe_content(self, summary: Mapping[str, Any]) -> list[Part]:
        raise NotImplementedError

    def summary(self) -> dict[str, Any]:
        """Return what `tiering info` prints: kind, sizes, provenance; JSON types only."""
        return {
            "kind": self.kind,
            "path": str(self.path),
            "version": f"{self.manifest.version[0]}.{self.manifest.version[1]}",
            "digest": self.digest,
            "bytes": sum(entry.bytes for entry in self.manifest.files.values()),
            "provenance": self.manifest.provenance,
            **self._summarize_content(),
        }

    def describe(self) -> list[Part]:
        """Describe the artifact: its path, the command that wrote it, its content."""
        summary = self.summary()
        provenance = summary["provenance"]
        made = [str(provenance[key]) for key in ("stage", "package") if provenance.get(key)]
        made += [] if provenance.get("seed") is None else [f"seed {provenance['seed']}"]
        size = format_bytes(summary["bytes"])
        about = {self.kind: summary["path"], "made by": ", ".join(made), "size": size, "digest": summary["digest"]}
        return [Fields(about), *self._describe_content(summary)]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path}>"


def _inode_state(path: str | os.PathLike[str]) -> object:
    with suppress(OSError, ValueError):
        status = Path(path).stat()
        return status.st_dev, status.st_ino, status.st_ctime_ns
    return None


@dataclass
class VerifyReport:
    """A full check of a fraction `sample` of each file's blocks, at least one, and the record of what it compared."""

    threads: int = 1
    sample: float = 1.0
    damaged: Mapping[tuple[str, str], Sequence[int]] = field(default_factory=dict)
    """Damaged blocks by the path of an artifact and the name of a file, of files that tasks have compared."""
    compared: int = 0  # bytes that were read and compared with a checksum
    known: int = 0  # bytes that have a checksum
    samples: list[str] = field(default_factory=list)  # files that are known by samples only, which were compared

    def to_json(self) -> dict[str, Any]:
        """Return the record as JSON types."""
        return {"compared": self.compared, "known": self.known, "samples": self.samples}

    def compare(self, manifest: Manifest, name: str) -> list[Problem]:
        """Return the damage of a file: of all its blocks, or of a random sample."""
        try:
            verifier = manifest.verifier(name)
        except FormatError as error:
            return [Problem(CHECKSUMS, str(error), "checksum")]
        wanted: Sequence[int] = range(num_blocks(verifier.nbytes))
        if self.sample < 1:
            wanted = random.sample(wanted, min(len(wanted), max(1, round(self.sample * len(wanted)))))
        where = name if name in manifest.files else f"external {name}: {verifier.path}"
        try:
            known = self.damaged.get((str(manifest.path.absolute()), name))
            wrong = verifier.damaged(wanted, self.threads) if known is None else list(known)
        except StorageError as error:
            return [Problem(where, str(error), "external")]
        self.known += verifier.nbytes
        self.compared += sum(end - begin for begin, end in map(verifier.span, wanted))
        if not wrong:
            return []
        places = ", ".join(verifier.describe(block) for block in wrong[:_SHOWN])
        more = f" and {len(wrong) - _SHOWN} more places" if len(wrong) > _SHOWN else ""
        return [Problem(where, f"content changed: {places}{more} differ from what was written", "checksum")]

    def compare_samples(self, name: str, external: External) -> list[Problem]:
        """Return the damage of a user's file by its samples; a whole check reads it all, to see what is lost."""
        where, whole = f"external {name}: {external.path}", self.sample >= 1
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
        text = f"{format_bytes(self.compared)} of {format_bytes(self.known)} compared with checksums"
        if self.samples:
            text += f"; only 64 samples were compared of {', '.join(self.samples)}"
        return text
