"""Files of an artifact that tasks write, one task each; the driver gives them their names at the end."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tiering.artifacts.file_writer import FileWriter, appending_memory
from tiering.artifacts.manifest import FileEntry
from tiering.artifacts.writer import ArtifactWriter
from tiering.run.job import Job
from tiering.run.pieces import TaskRecord
from tiering.run.step import ATTEMPTS, OutputFile, Step, TaskContext


@contextmanager
def output_file(context: TaskContext, folder: str, name: str, dtype: str, shape: Sequence[int]) -> Iterator[FileWriter]:
    """Open the file `name` of the unfinished artifact in `folder`, which this task writes whole."""
    own = f"{context.step}-{context.index:06}-"
    for stale in Path(folder, ATTEMPTS).glob(f"{own}*") if context.alone else ():
        stale.unlink(missing_ok=True)
    at = f"{ATTEMPTS}/{own}{uuid.uuid4().hex}"
    entry = FileEntry(dtype, tuple(shape), "")

    def finished(blocks: bytes) -> None:
        context.file = OutputFile(folder, name, at, dtype, [*shape], blocks.hex())

    with FileWriter(Path(folder) / at, entry.bytes, finished=finished) as file:
        yield file


def place_files(writer: ArtifactWriter, records: Iterable[TaskRecord]) -> None:
    """Give files that tasks have written their names, and record them."""
    for record in records:
        file = OutputFile(**record["file"])
        target = writer.path / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        (writer.path / file.at).replace(target)
        writer.record(file.name, FileEntry.of(file.dtype, tuple(file.shape), bytes.fromhex(file.blocks)))


def missing_files(writer: ArtifactWriter, step: Step) -> list[int]:
    """Return the tasks of a step that writes ``files`` whose file is not in its place yet."""
    return [index for index, file in enumerate(step.params["files"]) if not writer.has(file["name"])]


def make_files(job: Job, writer: ArtifactWriter, step: Step) -> None:
    """Write the files of a `join_step` that are not in their place yet."""
    place_files(writer, job.run(step, missing_files(writer, step)))


class PartitionRange(NamedTuple):
    """The first column of one partition of the tasks [first, end) of a step, one after the other."""

    step: str
    first: int
    end: int
    part: int = 0


@dataclass(frozen=True)
class JoinedFile:
    """A file that consists of partitions of finished tasks: JSON types."""

    name: str
    dtype: str
    shape: Sequence[int]
    parts: Sequence[PartitionRange]
    before: Sequence[int] | None = None
    """Numbers that are added to the values of each partition, such as the entries before it."""
    last: int | None = None  # a value after all others
    divided_by: float | None = None  # divisor of the values, if any


def join_step(name: str, folder: Path, files: Sequence[JoinedFile], largest: int) -> Step:
    """Return a step that writes files from partitions, one task each; `largest`: bytes of the largest partition."""
    params = {"folder": str(folder), "files": [vars(file) for file in files]}
    sizes = [FileEntry(file.dtype, tuple(file.shape), "").bytes for file in files]
    reads = {parts.step: None for file in files for parts in file.parts}
    memory = 3 * largest + max(map(appending_memory, sizes))
    return Step(name, "tiering.run.files:join", len(files), params, tuple(reads), memory)


def join(context: TaskContext) -> None:
    """Write one of the files of a `join_step`."""
    joined, number = JoinedFile(**context.params["files"][context.index]), 0
    with output_file(context, context.params["folder"], joined.name, joined.dtype, joined.shape) as file:
        for step, first, end, part in joined.parts:
            for task in range(first, end):
                values = next(iter(context.read(step, task, part).values()))
                if joined.before is not None:
                    values = values + joined.before[number]
                file.append(values if joined.divided_by is None else values / joined.divided_by)
                number += 1
        if joined.last is not None:
            file.append(np.array([joined.last], joined.dtype))
