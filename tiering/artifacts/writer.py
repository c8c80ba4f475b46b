"""Write a new artifact: its files first, the manifest last, the rename at the end."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, cast

import numpy as np

from tiering.artifacts.artifact import Artifact
from tiering.artifacts.atomic import OutputDirectory
from tiering.artifacts.checksum import DIGEST_BYTES, digest_bytes
from tiering.artifacts.document import MAJOR, MANIFEST, MINORS, document_problems, write_document
from tiering.artifacts.file_writer import PIECE_BYTES, FileWriter
from tiering.artifacts.held import HeldDirectory
from tiering.artifacts.journal import JOURNAL, Journal
from tiering.artifacts.manifest import CHECKSUMS, External, FileEntry, Manifest, storage_dtype
from tiering.artifacts.storage import storage_errors
from tiering.errors import FormatError, InputError, InternalError
from tiering.version import __version__


class ArtifactWriter:
    """Writes one artifact of a `kind`: files first, the manifest last, the rename at the end.

    Use as a context manager; leaving it without `commit` (an error, Ctrl-C) removes everything written. With an
    `identity` (see `OutputDirectory`), files that were finished stay for the next run of the same command, unless the
    error is the input's: ask `has` before a file is made once more. `reads` are artifacts that it is made from: what
    was read of them is verified to the end before anything is committed, if they verify (`Artifact.verify_reads`).
    """

    def __init__(
        self,
        out: str | os.PathLike[str],
        kind: str,
        *,
        force: bool = False,
        identity: Mapping[str, Any] | None = None,
        parent: ArtifactWriter | None = None,
        reads: Sequence[Artifact | None] = (),
    ) -> None:
        self.kind, self._parent, self._reads = kind, parent, reads
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
        stored = np.ascontiguousarray(array, storage_dtype(declared)).reshape(-1)
        with self.file(name, declared, array.shape, resumable=False) as file:
            file.write(0, stored.view(np.uint8))

    def file(
        self,
        name: str,
        dtype: str,
        shape: tuple[int, ...],
        *,
        resumable: bool = True,
        piece_bytes: int = PIECE_BYTES,
    ) -> FileWriter:
        """Begin a file; use as a context manager, which records it at its end.

        `resumable`: its blocks are noted in the journal, so that a killed run goes on from those that are there.
        """
        if self.journal is not None:  # a file that is begun anew is not there, whatever an earlier run has recorded
            self.journal.forget(f"file {self.prefix}{name}")
        entry = FileEntry(dtype, tuple(int(extent) for extent in shape), "")
        return FileWriter(
            self.path / name, entry.bytes, self.journal if resumable else None, self.prefix + name,
            finished=lambda digests: self.record(name, FileEntry.of(entry.dtype, entry.shape, digests)),
            piece_bytes=piece_bytes,
        )  # fmt: skip

    def has(self, *names: str) -> bool:
        """Whether an earlier run of the same identity finished all these files; they are taken over then."""
        entries = {}
        for name in names:
            facts = None if self.journal is None else self.journal.get(f"file {self.prefix}{name}")
            if facts is None or "blocks" not in facts:
                return False
            entry = FileEntry.of(facts["dtype"], tuple(facts["shape"]), bytes.fromhex(facts["blocks"]))
            file = self.path / name
            if not file.is_file() or file.stat().st_size != entry.bytes:
                return False
            entries[name] = entry
        self._files.update(entries)
        return True

    def required_journal(self) -> Journal:
        """The journal, for work that cannot do without it."""
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
            blocks = (entry.blocks or b"").hex()
            self.journal.record(f"file {self.prefix}{name}", dtype=entry.dtype, shape=list(entry.shape), blocks=blocks)

    def commit(self, body: dict[str, Any], provenance: dict[str, Any], requires: tuple[str, ...] = ()) -> Manifest:
        """Write the manifest, validate the document, and rename the directory into place.

        `requires` names features of the format that readers must know.
        `FormatError`: what was written would not open, a bug in the caller; nothing is replaced then.
        """
        for artifact in self._reads:
            if artifact is not None:
                artifact.finish_reads()
        manifest = Manifest(
            self.path, self.kind, (MAJOR, MINORS[self.kind]), self._files, self._parts, self.external,
            {"package": f"tiering {__version__}", **provenance}, body, requires=requires,
        )  # fmt: skip
        digests = np.frombuffer(manifest.checksums(), np.uint8)
        self.put(CHECKSUMS, digests.reshape(digests.size // DIGEST_BYTES, DIGEST_BYTES))
        self._sweep()
        data = write_document(manifest.to_json())
        problems = document_problems(json.loads(data), self.kind, data)
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
        inside = [str(file.path) for file in self.external.values()]  # by a path from here
        known = {self.path / name for name in (*self._files, *inside, MANIFEST, JOURNAL)}
        parts = {self.path / name for name in self._parts}
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


def _copy_part(artifact: Artifact, target: Path) -> None:
    held = cast("HeldDirectory", artifact.manifest.held)
    for name in (*artifact.manifest.files, MANIFEST):
        file = target / name
        with storage_errors(file, held.hold(name) or 0):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.unlink(missing_ok=True)
            held.link_or_copy(name, file)
    for name, part in artifact.parts().items():
        _copy_part(part, target / name)
