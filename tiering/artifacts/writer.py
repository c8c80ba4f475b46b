"""Write an output directory: each file once, journaled so that a killed run resumes; an artifact's manifest last."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from tiering.artifacts.artifact import Artifact
from tiering.artifacts.atomic import OutputDirectory
from tiering.artifacts.checksum import DIGEST_BYTES, digest_bytes, split_digests
from tiering.artifacts.document import MAJOR, MANIFEST, MINORS, document_problems, write_document
from tiering.artifacts.file_writer import PIECE_BYTES, FileWriter, block_key, damaged_blocks
from tiering.artifacts.journal import JOURNAL
from tiering.artifacts.manifest import CHECKSUMS, MOVED, UNREAD, External, FileEntry, Manifest, storage_dtype
from tiering.artifacts.storage import OpenDirectory, require_descriptors, storage_errors, write_durably
from tiering.errors import CapabilityError, FormatError, InputError, ModelError, TieringError
from tiering.version import __version__

Self = TypeVar("Self", bound="DirectoryWriter")


class DirectoryWriter:
    """A writer of the files of one directory, which appears whole or not at all; a context manager.

    Leaving it without a commit removes everything written; with an `identity` (see `OutputDirectory`) finished files
    stay for the next run of the same command, unless the error is the input's: ask `has` before a file is made once
    more. Of the artifacts `reads`, those that verify are verified to the end before the commit. With a `parent`, the
    directory is a subdirectory of the parent's; `root` is the outermost one. Artifacts have a `kind`; `external` are
    files outside that the manifest refers to, by name.
    """

    def __init__(
        self, out: str | os.PathLike[str], kind: str = "", *, force: bool = False,
        identity: Mapping[str, Any] | None = None, parent: DirectoryWriter | None = None,
        reads: Sequence[Artifact | None] = (),
    ) -> None:  # fmt: skip
        self.kind, self._reads, self._parent = kind, reads, parent
        self._files: dict[str, FileEntry] = {}
        self._parts: dict[str, str] = {}
        self._adopted: list[Artifact] = []
        self.external: dict[str, External] = {}
        self._output: OutputDirectory | None = None
        if parent is None:
            read = [path for one in filter(None, reads) for path in (one.path, *one.outside(dataset=False))]
            self._output = OutputDirectory(out, force=force, identity=identity, reads=read)
            self.path, self.out, self.root = self._output.path, self._output.out, self._output.out
            self.journal, self.prefix = self._output.journal, ""
        else:
            self.path, self.out = parent.path / out, parent.out / out
            self.journal, self.prefix, self.root = parent.journal, f"{parent.prefix}{out}/", parent.root
            self.path.mkdir(exist_ok=True)
        if reads and not any(one is not None and one.manifest.verify for one in reads):
            self.journal.unproven.clear()  # like the inputs, an earlier run's files are not verified

    def header(self, name: str, dtype: str, shape: tuple[int, ...]) -> bytes:
        """Return the bytes that precede the content of a file, a multiple of 4096."""
        return b""

    def put(self, name: str, array: np.ndarray[Any, Any], dtype: str | None = None) -> None:
        """Write a whole array as file `name`. Cost: one pass over its bytes."""
        declared = dtype or array.dtype.name
        stored = np.ascontiguousarray(array, storage_dtype(declared)).reshape(-1)
        with self.file(name, declared, array.shape, resumable=False) as file:
            file.write(0, stored.view(np.uint8))

    def file(
        self, name: str, dtype: str, shape: tuple[int, ...], *, resumable: bool = True, piece_bytes: int = PIECE_BYTES
    ) -> FileWriter:
        """Begin a file, recorded at its end; `resumable`: finished blocks are journaled for a killed run."""
        self.journal.forget(f"file {self.prefix}{name}")  # until it is finished again, an earlier record does not hold
        entry = FileEntry(dtype, tuple(map(int, shape)), "")
        return FileWriter(
            self.path / name, entry.bytes, self.journal if resumable else None, self.prefix + name,
            finished=lambda digests: self.record(name, FileEntry.of(entry.dtype, entry.shape, digests)),
            piece_bytes=piece_bytes, header=self.header(name, entry.dtype, entry.shape),
        )  # fmt: skip

    def has(self, *names: str) -> bool:
        """Return whether all these files are finished, compared once with their digests, and keep them."""
        return all(map(self._has, names))

    def _has(self, name: str) -> bool:
        key, file, journal = f"file {self.prefix}{name}", self.path / name, self.journal
        facts = journal.get(key)
        if facts is None or not file.is_file():
            return False
        blocks = bytes.fromhex(facts["blocks"])
        entry = FileEntry.of(facts["dtype"], tuple(facts["shape"]), blocks)
        header = self.header(name, entry.dtype, entry.shape)
        with file.open("rb") as stream:
            if file.stat().st_size != len(header) + entry.bytes or stream.read(len(header)) != header:
                return False
        if key in journal.unproven and (wrong := damaged_blocks(file, split_digests(blocks), len(header))):
            journal.forget(key, *(f"{block_key(self.prefix + name)}{block}" for block in wrong))
            return False
        journal.unproven.discard(key)
        self._files[name] = entry
        return True

    def drop(self, dropped: str) -> None:
        """Remove a recorded file, or the files of a folder of scratch files."""
        for name in [name for name in self._files if name == dropped or name.startswith(f"{dropped}/")]:
            (self.path / name).unlink(missing_ok=True)
            del self._files[name]
            self.journal.forget(f"file {self.prefix}{name}")

    def record(self, name: str, entry: FileEntry) -> None:
        """Record a file that was written under `path`, and synced, by other means."""
        self._files[name], blocks = entry, (entry.blocks or b"").hex()
        self.journal.record(f"file {self.prefix}{name}", dtype=entry.dtype, shape=list(entry.shape), blocks=blocks)

    def finish_reads(self) -> None:
        """Verify the inputs that were read to the end, and their arrays of nodes even if they were not read."""
        for artifact in filter(None, self._reads):
            artifact.finish_reads("nodes/")

    def sweep(self, keep: Collection[Path] = (), parts: Collection[Path] = ()) -> None:
        """Remove what was not recorded, such as scratch files; files to `keep` and the content of `parts` stay."""
        known = {*(self.path / name for name in self._files), self.path / JOURNAL, *keep}
        seen = []
        for folder, folders, names in os.walk(self.path):
            folders[:] = [name for name in folders if Path(folder, name) not in parts]
            seen.append(Path(folder))
            for name in names:
                if (file := Path(folder, name)) not in known:
                    file.unlink()
        for empty in reversed(seen[1:]):
            if not any(empty.iterdir()):
                empty.rmdir()

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, kind: object, value: object, trace: object) -> None:
        if self._output is None:
            return
        # Python's own errors are bugs: the next run must not stumble over them at the same place.
        passing = (KeyboardInterrupt, OSError, MemoryError, CapabilityError, ModelError)
        if isinstance(value, passing) and not isinstance(value, InputError):
            self._output.suspend()
        else:
            self._output.discard()
        if isinstance(value, OSError) and not isinstance(value, TieringError):
            with storage_errors():
                raise value


class ArtifactWriter(DirectoryWriter):
    """A writer of one artifact of a `kind`."""

    def part(self, name: str, kind: str) -> ArtifactWriter:
        """Begin a nested artifact in the subdirectory `name`, to be committed before this one."""
        return ArtifactWriter(name, kind, parent=self)

    def adopt(self, artifact: Artifact, name: str) -> None:
        """Add a finished artifact as part `name`, by hard links where possible; it is verified at `commit`."""
        _copy_part(artifact, self.path / name)
        self._parts[name] = artifact.digest
        self._adopted.append(artifact)

    def commit(self, body: dict[str, Any], provenance: dict[str, Any], requires: tuple[str, ...] = ()) -> Manifest:
        """Write the manifest, validate it, and rename the directory; readers must know what it `requires`."""
        self.finish_reads()
        for artifact in self._adopted:
            artifact.finish_reads("")
        manifest = Manifest(
            self.path, self.kind, (MAJOR, MINORS[self.kind]), self._files, self._parts, self.external,
            {"package": f"tiering {__version__}", **provenance}, body, requires=requires,
        )  # fmt: skip
        digests = np.frombuffer(manifest.checksums(), np.uint8)
        self.put(CHECKSUMS, digests.reshape(digests.size // DIGEST_BYTES, DIGEST_BYTES))
        self._sweep_unknown()
        # Files that an import did not read move out of the body: no digest depends on them.
        if paths := "\0".join(body.get("changes", {}).pop("ignored_files", [])):
            write_durably(self.path / UNREAD, os.fsencode(paths))
        data = write_document(manifest.to_json())
        problems = document_problems(json.loads(data), self.kind, data)
        if problems:
            raise FormatError(f"{self.out}: the manifest to be written is invalid: {problems[0]}")
        manifest.digest = self._publish(data)
        if self._output is not None:
            manifest.path = self.out
        return manifest

    def commit_copy(self, artifact: Artifact) -> None:
        """Write the manifest of an artifact whose files were copied, byte for byte; `external` has those outside."""
        self._sweep_unknown()
        documents = copied_documents(artifact, self.external)
        for name in (UNREAD, MOVED):
            if name in documents:
                write_durably(self.path / name, documents[name])
        self._publish(documents[MANIFEST])

    def _sweep_unknown(self) -> None:
        inside = [self.path / str(file.path) for file in self.external.values()]  # by a path from here
        self.sweep([self.path / MANIFEST, *inside], [self.path / name for name in self._parts])

    def _publish(self, data: bytes) -> str:
        """Write a manifest, and rename the directory; return the manifest's digest."""
        write_durably(self.path / MANIFEST, data)
        digest = digest_bytes(data)
        if self._parent is not None:
            self._parent._parts[self.path.name] = digest
        if self._output is not None:
            # The caller opens the artifact next, and features outside, and maps arrays.
            require_descriptors(32 + sum(len(names) for _, _, names in os.walk(self.path)))
            self._output.commit(file.path for file in self.external.values())
        return digest


def copied_documents(artifact: Artifact, external: Mapping[str, External]) -> dict[str, bytes]:
    """Return the documents of a copy by name: manifest, files that were not read, new paths of external files."""
    directory = cast("OpenDirectory", artifact.manifest.held)
    documents = {name: directory.read(name) for name in (MANIFEST, UNREAD) if directory.open(name)}
    recorded = json.loads(documents[MANIFEST])["external"]
    moved = {name: str(one.path) for name, one in external.items() if str(one.path) != recorded[name]["path"]}
    return documents if not moved else {**documents, MOVED: json.dumps(moved, indent=1).encode()}


def _copy_part(artifact: Artifact, target: Path) -> None:
    held = cast("OpenDirectory", artifact.manifest.held)
    for name in (*artifact.manifest.files, MANIFEST, *([UNREAD] if held.open(UNREAD) else [])):
        held.link_or_copy(name, target / name)
    # Files inside the artifact that are no files of its own, and moved ones, are referred to where they lie.
    inside = {name: str(file.path.absolute()) for name, file in artifact.manifest.external.items()}
    if held.open(MOVED) or any(file.path.is_relative_to(artifact.path) for file in artifact.manifest.external.values()):
        write_durably(target / MOVED, json.dumps(inside, indent=1).encode())
    for name, part in artifact.parts().items():
        _copy_part(part, target / name)
