"""Files of an artifact that tasks write, each by one task; who leads the job gives them their names at the end."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tiering.artifacts.file_writer import FileWriter
from tiering.artifacts.manifest import FileEntry
from tiering.artifacts.storage import storage_errors
from tiering.artifacts.writer import ArtifactWriter
from tiering.cluster.tasks import Manifest, OutputFile, TaskContext

ATTEMPTS = ".attempts"
"""Folder, in that of an artifact in the making, of files that tasks have written."""


@contextmanager
def output_file(context: TaskContext, folder: str, name: str, dtype: str, shape: Sequence[int]) -> Iterator[FileWriter]:
    """The file `name` of the artifact that is being made in `folder`, to be written whole by this task."""
    at = f"{ATTEMPTS}/{name.replace('/', '+')}-{uuid.uuid4().hex}"
    entry = FileEntry(dtype, tuple(shape), "")

    def finished(blocks: bytes) -> None:
        context.file = OutputFile(folder, name, at, dtype, entry.shape, blocks.hex())

    with FileWriter(Path(folder) / at, entry.bytes, finished=finished) as file:
        yield file


def place_files(writer: ArtifactWriter, manifests: Iterable[Manifest]) -> None:
    """Give files that tasks have written their names, and record them."""
    for manifest in manifests:
        file = OutputFile.from_json(manifest["file"])
        target = writer.path / file.name
        with storage_errors(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            (writer.path / file.at).replace(target)
        writer.record(file.name, FileEntry.of(file.dtype, file.shape, bytes.fromhex(file.blocks)))
