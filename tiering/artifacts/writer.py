"""Write a new artifact: its files first, the manifest last, the rename at the end."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from tiering.artifacts.artifact import Artifact
from tiering.artifacts.checksum import DIGEST_BYTES, digest_bytes
from tiering.artifacts.directory_writer import DirectoryWriter
from tiering.artifacts.document import MAJOR, MANIFEST, MINORS, document_problems, write_document
from tiering.artifacts.manifest import CHECKSUMS, External, Manifest
from tiering.artifacts.open_directory import OpenDirectory, require_descriptors
from tiering.artifacts.storage import storage_errors
from tiering.errors import FormatError
from tiering.version import __version__


class ArtifactWriter(DirectoryWriter):
    """A writer of one artifact of a `kind`; for its options see `DirectoryWriter`."""

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
        super().__init__(out, force=force, identity=identity, parent=parent, reads=reads)
        self.kind, self._artifact = kind, parent
        self._parts: dict[str, str] = {}
        self._adopted: list[Artifact] = []
        self.external: dict[str, External] = {}
        """Files outside the artifact that its manifest refers to, by name."""

    def part(self, name: str, kind: str) -> ArtifactWriter:
        """Begin a nested artifact in the subdirectory `name`, to be committed before this one."""
        return ArtifactWriter(name, kind, parent=self)

    def adopt(self, artifact: Artifact, name: str) -> None:
        """Add a finished artifact as part `name`, by hard links where possible, else by copies.

        If it verifies (`Artifact.verify_reads`), all its files are verified at `commit`. Cost: reads the blocks that
        nobody has read.
        """
        _copy_part(artifact, self.path / name)
        self._parts[name] = artifact.digest
        self._adopted.append(artifact)

    def commit(self, body: dict[str, Any], provenance: dict[str, Any], requires: tuple[str, ...] = ()) -> Manifest:
        """Write the manifest, validate it, and rename the directory into place.

        `requires` names features of the format that readers must know. `FormatError`: the artifact would not open, a
        bug in the caller; nothing is replaced then.
        """
        self.finish_reads()
        for artifact in self._adopted:
            artifact.finish_reads("")
        manifest = Manifest(
            self.path, self.kind, (MAJOR, MINORS[self.kind]), self._files, self._parts, self.external,
            {"package": f"tiering {__version__}", **provenance}, body, requires=requires,
        )  # fmt: skip
        digests = np.frombuffer(manifest.checksums(), np.uint8)
        self.put(CHECKSUMS, digests.reshape(digests.size // DIGEST_BYTES, DIGEST_BYTES))
        inside = [self.path / str(file.path) for file in self.external.values()]  # by a path from here
        self.sweep([self.path / MANIFEST, *inside], [self.path / name for name in self._parts])
        data = write_document(manifest.to_json())
        problems = document_problems(json.loads(data), self.kind, data)
        if problems:
            raise FormatError(f"{self.out}: the manifest to be written is invalid: {problems[0]}")
        self.put_document(MANIFEST, data)
        manifest.digest = digest_bytes(data)
        if self._artifact is not None:
            self._artifact._parts[self.path.name] = manifest.digest
        if self._output is not None:
            # The caller opens the artifact next, and features outside, and maps arrays.
            require_descriptors(32 + sum(len(names) for _, _, names in os.walk(self.path)))
            self._output.commit(file.path for file in self.external.values())
            manifest.path = self.out
        return manifest


def _copy_part(artifact: Artifact, target: Path) -> None:
    held = cast("OpenDirectory", artifact.manifest.held)
    for name in (*artifact.manifest.files, MANIFEST):
        file = target / name
        with storage_errors(file, held.open(name) or 0):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.unlink(missing_ok=True)
            held.link_or_copy(name, file)
    for name, part in artifact.parts().items():
        _copy_part(part, target / name)
