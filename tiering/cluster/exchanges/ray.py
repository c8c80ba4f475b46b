"""The exchange through Ray: each part is an object of Ray's, in the memory of the machine that made it or spilled to
its disk, until the process that leads the job lets it go.

That process owns all of them: a worker that ends takes nothing along, a machine takes what was made there. Ray is told
to make nothing again; what is lost is an error of who reads it, and the task that made it is run again.

A task finds parts by tables: of each stage that it reads one object, which leads to one for each number of a part,
which leads to the parts of that number of all tasks. So it learns of what it reads and of little else.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Thread
from typing import Any, Generic, TypeVar

import numpy as np

from tiering.cluster.exchanges.exchange import Left, Part
from tiering.cluster.manifests import LostError, Manifest
from tiering.cluster.segments import Columns, SegmentWriter, part_digest
from tiering.errors import InputError, InternalError, StorageError

MOST_PARTS = 1_000_000
"""That one job may hand on: the process that leads it takes some 3 KB to own an object."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class _Held:
    """What a task has left: the key of its segment, Ray's references to its parts, where it was made."""

    key: str
    parts: Sequence[Any]
    node: str


class RayExchange:
    """As who leads a job uses it; it owns the parts."""

    def __init__(self) -> None:
        self._held: dict[str, dict[int, _Held]] = {}
        self._tables: dict[str, Any] = {}

    def giving(self) -> tuple[GivingExchange, Left]:
        left = Left()
        return GivingExchange(left), left

    def keep(self, tasks: int, manifest: Manifest, left: Left) -> None:
        stage, key = manifest["stage"], manifest["segment"]["key"]
        held = self._held.setdefault(stage, {})
        if not held:
            self._check_room(stage, tasks, len(left.parts))
        held[manifest["index"]] = _Held(key, left.parts, left.node)
        self._tables.pop(stage, None)

    def there(self, manifest: Manifest) -> bool:
        held = self._held.get(manifest["stage"], {}).get(manifest["index"])
        return (0 if held is None else len(held.parts)) == int(manifest["segment"]["parts"])

    def carried(self, stages: Sequence[str]) -> dict[str, Any]:
        return {stage: self._table(stage) for stage in stages}

    def part(self, stage: str, index: int, part: int) -> Part:
        held = self._held.get(stage, {}).get(index)
        if held is None:
            raise _not_held(stage, index)
        return _fetch(stage, index, part, held.key, held.parts[part])

    def lost_with(self, stage: str, index: int) -> list[int]:
        """Itself, and all that were made on machines that are gone, even where Ray has copies."""
        import ray

        gone = {node["NodeID"] for node in ray.nodes() if not node["Alive"]}
        return sorted({index} | {task for task, held in self._held.get(stage, {}).items() if held.node in gone})

    def drop(self, stage: str) -> None:
        self._held.pop(stage, None)
        self._tables.pop(stage, None)

    def clear(self) -> None:
        self._held.clear()
        self._tables.clear()

    def _check_room(self, stage: str, tasks: int, parts: int) -> None:
        """Refuse a stage by the first of its tasks that has ended: they hand on about as many parts each."""
        others = sum(len(held.parts) for tasks_held in self._held.values() for held in tasks_held.values())
        if others + tasks * parts > MOST_PARTS:
            raise InputError(
                f"exchange ray: expected {MOST_PARTS} parts at the most, found {tasks} tasks of {stage} with {parts} "
                f"each beside {others} before them; use --exchange store, or fewer, larger tasks (--task-memory)"
            )

    def _table(self, stage: str) -> Any:
        """The object that leads to the parts of a stage, made when it is first asked for since a task was run."""
        import ray

        if stage not in self._tables:
            held = self._held.get(stage, {})
            tasks = range(max(held, default=-1) + 1)
            parts = {task: held[task].parts if task in held else () for task in tasks}
            columns = [
                ray.put([parts[task][part] if part < len(parts[task]) else None for task in tasks])
                for part in range(max(map(len, parts.values()), default=0))
            ]
            self._tables[stage] = ray.put(([held[task].key if task in held else "" for task in tasks], columns))
        return self._tables[stage]


class _Nowhere:
    """Takes the bytes that a segment in a store would have."""

    def write(self, data: np.ndarray[Any, Any]) -> None:
        """Drop them."""

    def __enter__(self) -> _Nowhere:
        return self

    def __exit__(self, *error: object) -> None:
        pass


class _SentParts(SegmentWriter):
    """Sends parts elsewhere, and tells what the segment in a store would be: manifests are the same for both."""

    def __init__(self, key: str, send: Callable[[tuple[int, Part]], None]) -> None:
        super().__init__(key, _Nowhere())
        self._send = send

    def add(self, columns: Columns) -> None:
        whole = {name: np.ascontiguousarray(array) for name, array in columns.items()}
        super().add(whole)
        self._send((self.records[-1][3], whole))


class GivingExchange:
    """For tasks of the process that leads: it puts their parts into the memory of its own machine."""

    def __init__(self, left: Left) -> None:
        self._left = left

    @contextmanager
    def writer(self, key: str, nbytes: int) -> Iterator[SegmentWriter]:
        import ray

        yield _SentParts(key, lambda part: self._left.parts.append(ray.put(part)))

    def part(self, stage: str, index: int, part: int) -> Part:
        raise InternalError(f"a task of the process that leads reads {stage}")

    def remove(self, key: str) -> None:
        pass


class RayTaskExchange(Generic[Result]):
    """As an attempt uses it, in a worker of Ray: a task of Ray's that yields hands what it yields to who called it.

    The attempt runs in a thread of its own, so that it can hand on a part from within its work (`run`).
    """

    def __init__(self, tables: Mapping[str, Any]) -> None:
        self._tables = tables
        self._opened: dict[str, tuple[list[str], list[Any]]] = {}
        self._columns: dict[tuple[str, int], list[Any]] = {}
        self._parts: SimpleQueue[tuple[int, Part] | None] = SimpleQueue()
        self._taken: SimpleQueue[bool] = SimpleQueue()

    def run(self, make: Callable[[], Result]) -> Iterator[tuple[int, Part] | Result]:
        """The parts that a function, which raises nothing, hands on while it runs, then what it returns."""
        made: list[Result] = []

        def work() -> None:
            try:
                made.append(make())
            finally:
                self._parts.put(None)

        Thread(target=work, name="task", daemon=True).start()
        try:
            while (part := self._parts.get()) is not None:
                yield part
                del part
                self._taken.put(True)
        finally:
            self._taken.put(False)  # a task whose parts nobody takes any more is not to wait for ever
        yield made[0]

    @contextmanager
    def writer(self, key: str, nbytes: int) -> Iterator[SegmentWriter]:
        yield _SentParts(key, self._send)

    def _send(self, part: tuple[int, Part]) -> None:
        """Hand a part on, and wait until Ray has stored it."""
        self._parts.put(part)
        if not self._taken.get():
            raise StorageError(errno.EIO, "Ray does not take what this task hands on; see Ray's logs on that machine")

    def part(self, stage: str, index: int, part: int) -> Part:
        if stage not in self._tables:
            raise InternalError(f"a task reads {stage}, which its stage does not name")
        if stage not in self._opened:
            self._opened[stage] = _get(stage, index, f"the table of {stage}", "", self._tables[stage])
        keys, columns = self._opened[stage]
        if index >= len(keys) or not keys[index]:
            raise _not_held(stage, index)
        if (stage, part) not in self._columns:
            self._columns[stage, part] = _get(stage, index, f"the table of {stage}", "", columns[part])
        return _fetch(stage, index, part, keys[index], self._columns[stage, part][index])

    def remove(self, key: str) -> None:
        pass


def _not_held(stage: str, index: int) -> LostError:
    return LostError(stage, index, "what it has left was held by a process that has ended")


def _fetch(stage: str, index: int, part: int, key: str, reference: Any) -> Part:
    """The columns of a part, compared with their checksum; they lie in Ray's memory."""
    digest, columns = _get(stage, index, f"part {part}", key, reference)
    if part_digest(columns) != digest:
        raise LostError(stage, index, f"Ray's memory: part {part} is not what was written (checksum)", key)
    found: Part = columns
    return found


def _get(stage: str, index: int, what: str, key: str, reference: Any) -> Any:
    import ray
    from ray.exceptions import ObjectStoreFullError, OutOfDiskError, RayError

    try:
        return ray.get(reference)
    except (ObjectStoreFullError, OutOfDiskError) as error:
        raise StorageError(errno.ENOSPC, f"{what} of task {index} of {stage}: Ray has no room for it here") from error
    except RayError as error:
        raise LostError(stage, index, f"Ray has lost {what} ({type(error).__name__})", key) from error
