"""Move items by tasks: one for each chunk of the items cuts them by window, then one for each window fills it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from tiering import native
from tiering.artifacts import checksum
from tiering.artifacts.manifest import FileEntry
from tiering.run.files import TaskFile, files_step, output_window
from tiering.run.grid import Grid, equal_bounds
from tiering.run.job import Job
from tiering.run.pieces import TaskRecord
from tiering.run.places import Places, Window, WindowBuffer
from tiering.run.step import Step, TaskContext, resolve

_HERE = "tiering.run.move_tasks"
COPIES = 4  # of a chunk that is cut, or of a window that is filled: read, sorted, written, and numbers of items
_ITEM_BYTES = 96  # memory per item that is cut: rank, place, and what these are computed from


@dataclass(frozen=True)
class TaskItems:
    """Items of one length that tasks move: JSON types."""

    name: str  # of the step whose tasks cut them
    places: Places
    items: int
    item_bytes: int  # bytes of an item on its way, at most
    read: str  # ``module:name`` of a function of a `TaskContext` and a range of items: items, numbers, small facts
    params: Mapping[str, Any]  # for that function

    def chunks(self, grid: Grid) -> int:
        """Return the number of tasks that cut them."""
        return grid.parts(self.items * self.item_bytes * COPIES)


def task_files(
    files: Sequence[tuple[str, str, str, Sequence[int]]], moves: Sequence[TaskItems], grid: Grid
) -> list[TaskFile]:
    """Return files, of a name, folder, dtype and shape, cut into windows that a task has room for."""
    total = sum(one.places.nbytes for one in moves)
    most = max(1, total // grid.parts(total * COPIES) // checksum.BLOCK_BYTES) * checksum.BLOCK_BYTES
    made = []
    for name, folder, dtype, shape in files:
        nbytes = FileEntry(dtype, tuple(shape), "").bytes
        made.append(TaskFile(name, folder, dtype, shape, [*range(most, nbytes, most), nbytes]))
    return made


def move_steps(
    job: Job, name: str, moves: Sequence[TaskItems], files: Sequence[TaskFile], page_bytes: Mapping[int, int]
) -> tuple[list[Step], Step]:
    """Return the steps that cut items, and the step `name` that fills the files' windows.

    Of the files in `page_bytes`, by number, the checksums of pages become a partition.
    """
    ends, cuts = {str(number): file.ends for number, file in enumerate(files)}, []
    for one in moves:
        chunks, item = one.chunks(job.grid), one.item_bytes * COPIES + _ITEM_BYTES
        params = {
            **one.params, "items": one.items, "chunks": chunks, "read": one.read, "places": one.places.to_json(),
            "ends": {file: ends[file] for file in one.places.sizes},
        }  # fmt: skip
        memory = -(-one.items // chunks) * item + 2 * checksum.BLOCK_BYTES
        cuts.append(Step(one.name, f"{_HERE}:cut", chunks, params, memory=memory))
    most = max((end - begin for file in files for begin, end in pairwise([0, *file.ends])), default=0)
    filled = [{"step": cut.name, "chunks": cut.tasks, "places": cut.params["places"]} for cut in cuts]
    params = {"moves": filled, "page_bytes": {str(file): nbytes for file, nbytes in page_bytes.items()}}
    reads = [cut.name for cut in cuts]
    return cuts, files_step(name, f"{_HERE}:fill", files, params, reads, COPIES * most)


def run_moves(job: Job, cuts: Sequence[Step], step: Step, wanted: Sequence[int]) -> list[TaskRecord]:
    """Fill the `wanted` windows."""
    if not wanted:
        return []
    for cut in cuts:
        job.run(cut)
    made = job.run(step, wanted)
    job.release(*cuts)
    return made


def _task_windows(ends: Mapping[str, Sequence[int]]) -> Iterator[Window]:
    for file, of_file in ends.items():
        for begin, end in pairwise([0, *of_file]):
            yield Window(int(file), begin // checksum.BLOCK_BYTES, begin, end)


def cut(context: TaskContext) -> dict[str, Any]:
    """Write the items of a chunk by window, file after file; return facts about them."""
    params = context.params
    begin, end = equal_bounds(params["items"], params["chunks"])[context.index : context.index + 2]
    items, numbers, facts = resolve(params["read"])(context, begin, end)
    places, memory = Places.from_json(params["places"]), context.buffer(items.nbytes)
    windows = [*_task_windows(params["ends"])]
    for columns in places.cut(items, places.of(numbers), windows, memory, context.threads):
        context.write(**columns)
    return facts  # type: ignore[no-any-return]


def fill(context: TaskContext) -> None:
    """Write a window of a file from the partitions of all chunks; and the checksums of its pages, if it has pages."""
    params, sums = context.params, []
    with output_window(context) as out:
        page_bytes = params["page_bytes"].get(str(out.number), 0)
        moves = [(one, Places.from_json(one["places"])) for one in params["moves"]]
        moves = [(one, places) for one, places in moves if str(out.number) in places.sizes]
        ends = {str(number): file["ends"] for number, file in enumerate(params["files"])}
        for part in out.parts:
            window = Window(out.number, -1, *(out.file.ends[part - 1] if part else 0, out.file.ends[part]))
            reach = max((places.item_bytes for _, places in moves), default=1) - 1
            buffer = WindowBuffer(window, reach, context.buffer)
            for one, places in moves:
                files = [len(ends[file]) for file in places.sizes if int(file) < out.number]
                wanted = ((chunk, sum(files) + part) for chunk in range(one["chunks"]))
                for found in context.read_many(one["step"], wanted, keep=False):
                    if found["row"].size:
                        places.put(found["row"], found["place"], buffer, context.threads, first=0)
            written = out.append(buffer.data)
            if page_bytes and written.size:
                sums.append(native.page_hashes(written, page_bytes).astype("<u4", copy=False))
    if page_bytes:
        context.write(sums=np.concatenate(sums) if sums else np.empty(0, "<u4"))
