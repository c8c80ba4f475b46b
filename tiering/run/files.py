"""Files of an artifact that tasks write, window by window; the driver gives them their names at the end.

A window is a run of whole blocks of the file, which one task writes in its place: two attempts write the same bytes,
and a resumed run writes the windows whose blocks are not as recorded. What a file consists of comes in parts of
known sizes; a part across the edge of two windows is made for both.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tiering.artifacts import checksum
from tiering.artifacts.file_writer import FileWriter, appending_memory
from tiering.artifacts.manifest import FileEntry
from tiering.artifacts.overlap import file_system
from tiering.artifacts.storage import AnyArray, Bytes
from tiering.artifacts.writer import DirectoryWriter
from tiering.errors import InternalError
from tiering.run.job import Job
from tiering.run.pieces import TaskRecord
from tiering.run.step import ATTEMPTS, OutputFile, Step, TaskContext

_PARTS, _MANY = 2, 64  # parts of a window, where its end lies within one; four times as many where a file has many
_SHARED_FUSE = ("fuse.glusterfs", "fuse.ceph", "fuse.ceph-fuse", "fuse.juicefs")


@dataclass(frozen=True)
class TaskFile:
    """A file that tasks write: JSON types."""

    name: str
    folder: str  # directory of the unfinished artifact, or of a stripe file
    dtype: str
    shape: Sequence[int]
    ends: Sequence[int]  # bytes of the file up to the end of each part

    @property
    def nbytes(self) -> int:
        """Bytes of the file."""
        return FileEntry(self.dtype, tuple(self.shape), "").bytes

    def span(self, block: int, end: int) -> int:
        """Return the bytes of the blocks [block, end)."""
        return min(self.nbytes, end * checksum.BLOCK_BYTES) - block * checksum.BLOCK_BYTES

    def windows(self) -> Iterator[tuple[list[int], list[int]]]:
        """Yield the blocks and the parts of each window, both as half-open ranges."""
        block_bytes, shared = checksum.BLOCK_BYTES, self.nbytes > checksum.BLOCK_BYTES and allows_writers(self.folder)
        most = _PARTS if len(self.ends) < _MANY else 4 * _PARTS
        block = first = 0
        for part, end in enumerate(self.ends):
            after, rest = divmod(end, block_bytes)
            if shared and after > block and end - rest < self.nbytes and (rest == 0 or part - first >= most):
                yield [block, after], [first, bisect_left(self.ends, end - rest) + 1]
                block, first = after, bisect_right(self.ends, end - rest)
        yield [block, checksum.num_blocks(self.nbytes)], [first, len(self.ends)]


def ends_of(sizes: Iterable[int]) -> list[int]:
    """Return where parts of these sizes end."""
    return list(accumulate(sizes))


def allows_writers(folder: str) -> bool:
    """Return whether several machines may write to one file at the same time.

    File systems in user space mostly put a file as one object when it is closed, so that the last writer wins.
    """
    kind = file_system(Path(folder))
    return not kind.startswith("fuse") or kind in _SHARED_FUSE


def files_step(
    name: str, function: str, files: Sequence[TaskFile], params: Mapping[str, Any], reads: Sequence[str], memory: int
) -> Step:
    """Return a step with a task for each window of `files`; `memory` of a task without the writing of a file."""
    windows = [
        {"file": number, "blocks": blocks, "parts": parts, "bytes": file.span(*blocks)}
        for number, file in enumerate(files)
        for blocks, parts in file.windows()
    ]
    memory += max((appending_memory(file.nbytes) for file in files), default=0)
    params = {**params, "files": [vars(file) for file in files], "windows": windows}
    return Step(name, function, len(windows), params, tuple(reads), memory)


class OutputWindow:
    """A window that a task writes: the parts of its file that it consists of, front to back."""

    def __init__(self, writer: FileWriter, file: TaskFile, number: int, parts: range) -> None:
        self.file, self.number, self.parts = file, number, parts
        self._writer, self._next = writer, parts.start

    def append(self, values: AnyArray) -> Bytes:
        """Write the next part, of which the window may have only some; return the bytes that it has."""
        data = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        begin = self.file.ends[self._next - 1] if self._next else 0
        if begin + data.size != self.file.ends[self._next]:
            raise InternalError(f"{self.file.name}: part {self._next} has {data.size} bytes from byte {begin} on")
        self._next += 1
        low, high = (min(max(at - begin, 0), data.size) for at in (self._writer.begin, self._writer.stop))
        own = data[low:high]
        if own.size:
            self._writer.append(own, begin + low)
        return own


@contextmanager
def output_window(context: TaskContext) -> Iterator[OutputWindow]:
    """Open the window that this task of a `files_step` writes."""
    window = context.params["windows"][context.index]
    number, blocks, parts = window["file"], range(*window["blocks"]), range(*window["parts"])
    file = TaskFile(**context.params["files"][number])
    at = f"{ATTEMPTS}/{context.step}-{number:06}"

    def finished(digests: bytes) -> None:
        context.file = OutputFile(file.folder, file.name, at, file.dtype, [*file.shape], digests.hex(), blocks.start)

    with FileWriter(Path(file.folder) / at, file.nbytes, finished=finished, blocks=blocks) as writer:
        yield OutputWindow(writer, file, number, parts)


def whole_files(records: Iterable[TaskRecord]) -> list[OutputFile]:
    """Return the files whose windows tasks have written, all of them."""
    files: dict[tuple[str, str], list[OutputFile]] = {}
    for record in records:
        file = OutputFile(**record["file"])
        files.setdefault((file.folder, file.at), []).append(file)
    made = []
    for windows in files.values():
        windows.sort(key=lambda file: file.first)
        made.append(replace(windows[0], blocks="".join(window.blocks for window in windows)))
    return made


def place_files(writer: DirectoryWriter, files: Iterable[OutputFile]) -> None:
    """Give files that tasks have written their names, and record them."""
    for file in files:
        target = writer.path / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        (writer.path / file.at).replace(target)
        writer.record(file.name, FileEntry.of(file.dtype, tuple(file.shape), bytes.fromhex(file.blocks)))


def missing_windows(writer: DirectoryWriter, step: Step) -> list[int]:
    """Return the tasks of a `files_step` whose file is not in its place yet."""
    there = [writer.has(file["name"]) for file in step.params["files"]]
    return [index for index, window in enumerate(step.params["windows"]) if not there[window["file"]]]


def make_files(job: Job, writer: DirectoryWriter, step: Step) -> None:
    """Write the files of a `files_step` that are not in their place yet."""
    place_files(writer, whole_files(job.run(step, missing_windows(writer, step))))


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
    rows: Sequence[int]  # values of each partition, along the first axis
    before: Sequence[int] | None = None
    """Numbers that are added to the values of each partition, such as the entries before it."""
    last: int | None = None  # a value after all others
    divided_by: float | None = None  # divisor of the values, if any


def join_step(name: str, folder: Path, files: Sequence[JoinedFile]) -> Step:
    """Return a step that writes files from partitions."""
    made, largest = [], 0
    for file in files:
        item = FileEntry(file.dtype, (1, *file.shape[1:]), "").bytes
        sizes = [item * count for count in (*file.rows, *[1] * (file.last is not None))]
        made.append(TaskFile(file.name, str(folder), file.dtype, file.shape, ends_of(sizes)))
        largest = max(largest, *sizes, 0)
    reads = {parts.step: None for file in files for parts in file.parts}
    joined = {"joined": [vars(file) for file in files]}
    return files_step(name, "tiering.run.files:join", made, joined, tuple(reads), 3 * largest)


def join(context: TaskContext) -> None:
    """Write a window of one of the files of a `join_step`."""
    with output_window(context) as out:
        joined = JoinedFile(**context.params["joined"][out.number])
        places = [(step, task, part) for step, first, end, part in joined.parts for task in range(first, end)]
        for number in out.parts:
            if number == len(places):
                out.append(np.array([joined.last], joined.dtype))
                continue
            values = next(iter(context.read(*places[number]).values()))
            if joined.before is not None:
                values = values + joined.before[number]
            out.append(values if joined.divided_by is None else values / joined.divided_by)
