"""Files of an artifact that tasks write, each by one task; who leads the job gives them their names at the end."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tiering.artifacts.file_writer import FileWriter, appending_memory
from tiering.artifacts.manifest import FileEntry
from tiering.artifacts.storage import storage_errors
from tiering.artifacts.writer import ArtifactWriter
from tiering.cluster.tasks import Manifest, OutputFile, Stage, TaskContext

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


@dataclass(frozen=True)
class JoinedFile:
    """A file that consists of one part of each task of a stage, in the order of the tasks."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    part: int = 0
    before: Sequence[int] | None = None
    """What is added to the values of each part, such as the entries before it."""
    last: int | None = None
    """A value behind them all."""


def join_stage(name: str, source: Stage, writer: ArtifactWriter, joined: Sequence[JoinedFile], largest: int) -> Stage:
    """A stage that writes files of the parts of `source`, one task each; `largest`: bytes of the largest part."""
    params = {
        "from": source.name, "parts": source.tasks, "folder": str(writer.path),
        "files": [{**vars(file), "shape": list(file.shape)} for file in joined],
    }  # fmt: skip
    memory = 2 * largest + max(appending_memory(FileEntry(f.dtype, tuple(f.shape), "").bytes) for f in joined)
    return Stage(name, "tiering.cluster.files:join", len(joined), params, (source.name,), memory)


def join(context: TaskContext) -> None:
    """Write one of the files of a `join_stage`."""
    params = context.params
    joined = JoinedFile(**params["files"][context.index])
    with output_file(context, params["folder"], joined.name, joined.dtype, joined.shape) as file:
        for task in range(params["parts"]):
            (values,) = context.part(params["from"], task, joined.part).values()
            file.append(values if joined.before is None else values + joined.before[task])
        if joined.last is not None:
            file.append(np.array([joined.last], joined.dtype))
