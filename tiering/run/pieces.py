"""The shuffle between tasks: the file of partitions that each task writes, and the record by which others find it.

A shuffle file is one object. Partition follows partition, and in it column follows column, each at a multiple of 64
bytes. Then comes one entry per partition: its offset, its rows, which columns it has, and the XXH3-64 of its bytes; a
reader needs these 32 bytes and the partition. All else about the file is in the record of the task, JSON that is put
once.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import xxhash

from tiering.artifacts.storage import LINE, AnyArray, Bytes
from tiering.errors import FormatError, InternalError, MissingError, TieringError
from tiering.run.store import ObjectWriter, Store

Columns = Mapping[str, AnyArray]
TaskRecord = dict[str, Any]
"""The record of a finished task: small facts, its shuffle file, the artifact file that it wrote."""
Kind = list[list[Any]]  # columns of a partition: name, dtype, shape of a row
ENTRY = np.dtype([("offset", "<u8"), ("rows", "<u8"), ("kind", "<u8"), ("digest", "<u8")])


def plan_key(job: str, step: str) -> str:
    """Return the key of a step's plan in the store."""
    return f"{job}/plans/{step}.json"


def record_key(job: str, step: str, index: int) -> str:
    """Return the key of a finished task's record in the store."""
    return f"{job}/{step}/{index:06}.json"


def released_key(job: str, step: str) -> str:
    """Return the key of the mark that no later step reads the shuffle files of a step."""
    return f"{job}/{step}/released"


def shuffle_folder(job: str, step: str) -> str:
    """Return the folder of a step's shuffle files in the store."""
    return f"{job}/{step}/shuffle"


def canonical(document: Any) -> bytes:
    """Return JSON that is the same bytes for the same values."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def digest_of(document: Any) -> str:
    """Return the digest of a document's canonical JSON, as ``xxh3-64:HEX``."""
    return "xxh3-64:" + xxhash.xxh3_64_hexdigest(canonical(document))


def read_record(store: Store, job: str, step: str, index: int) -> TaskRecord | None:
    """Return the record of a task; ``None`` if it is missing or damaged."""
    try:
        document = json.loads(store.read(record_key(job, step, index)).tobytes())
        digest = document.pop("digest")
    except (MissingError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return {**document, "digest": digest} if digest == digest_of(document) else None


def table_key(job: str, step: str) -> str:
    """Return the key of the shuffle files of a finished step: one object instead of a record for each task."""
    return f"{job}/{step}/files"


def put_table(store: Store, job: str, step: str, records: Sequence[TaskRecord]) -> None:
    """Put the table of a step's shuffle files, in place of an earlier one."""
    files, key = [record["shuffle"] for record in records], table_key(job, step)
    table = canonical({"files": files, "digest": digest_of(files)})
    if store.put_if_absent(key, table) != table:
        store.remove(key)
        store.put_if_absent(key, table)


def read_table(store: Store, job: str, step: str) -> list[ShuffleFile]:
    """Return the shuffle files of a step's tasks; none where there is no table, or a damaged one."""
    try:
        document = json.loads(store.read(table_key(job, step)).tobytes())
        files = document["files"] if document["digest"] == digest_of(document["files"]) else []
        return [ShuffleFile(**file) for file in files]
    except (MissingError, ValueError, KeyError, TypeError):
        return []


class LostError(TieringError):
    """The shuffle file or record of a task is gone or damaged: the task has to run again."""

    def __init__(self, step: str, index: int, why: str, key: str = "") -> None:
        super().__init__(step, index, why, key)
        self.step, self.index, self.why = step, index, why
        self.key = key  # the shuffle file that cannot be used; empty where the record is lost

    def __str__(self) -> str:
        return f"task {self.index} of {self.step} must run again: {self.why}{self.place}"


@dataclass(frozen=True)
class ShuffleFile:
    """The partitions that one task wrote, as its record describes them: JSON types."""

    key: str
    partitions: int
    kinds: Sequence[Kind]  # those that partitions have; an entry names one of them by number
    entries_at: int  # offset of the entries
    digest: str  # XXH3-64 of the entries, which hold the checksums of all partitions

    @property
    def nbytes(self) -> int:
        """Size of the shuffle file, its table of entries included."""
        return self.entries_at + self.partitions * ENTRY.itemsize


@dataclass
class ShuffleFileWriter:
    """A writer of partitions, one after the other, to an object that the caller closes after `finish`."""

    key: str
    out: ObjectWriter
    kinds: list[Kind] = field(default_factory=list)
    entries: list[tuple[int, int, int, int]] = field(default_factory=list)
    at: int = 0

    def add(self, columns: Columns) -> None:
        """Write the next partition: arrays of one length along their first axis."""
        kind = [[name, array.dtype.newbyteorder("<").str, [*array.shape[1:]]] for name, array in columns.items()]
        if kind not in self.kinds:
            self.kinds.append(kind)
        rows = {array.shape[0] for array in columns.values()}
        if len(rows) != 1:
            raise InternalError(f"{self.key}: columns of {sorted(rows)} rows in one partition")
        begin, state = self.at, xxhash.xxh3_64()
        for array in columns.values():
            data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            for piece in (data, np.zeros(-data.size % LINE, np.uint8)):
                state.update(piece.data)
                self._write(piece)
        self.entries.append((begin, rows.pop(), self.kinds.index(kind), state.intdigest()))

    def finish(self) -> ShuffleFile:
        """Write the entries; return the description of the file, which is valid once the object is closed."""
        entries = np.array(self.entries, ENTRY)
        file = ShuffleFile(self.key, entries.size, self.kinds, self.at, xxhash.xxh3_64_hexdigest(entries.tobytes()))
        self._write(entries.view(np.uint8))
        return file

    def _write(self, data: Bytes) -> None:
        self.out.write(data)
        self.at += data.size


Memory: TypeAlias = Callable[[int], Bytes]  # returns memory of so many bytes


def fresh(nbytes: int) -> Bytes:
    """Return new memory."""
    return np.empty(nbytes, np.uint8)


def within(memory: Bytes) -> Memory:
    """Return what gives the begin of `memory`."""
    return lambda nbytes: memory[:nbytes]


def read_partition(store: Store, file: ShuffleFile, partition: int, memory: Memory = fresh) -> dict[str, AnyArray]:
    """Return a partition in `memory`, compared with its checksum; `FormatError` or `MissingError` if it is damaged."""
    with store.open(file.key) as found:
        entry = found.read(file.entries_at + partition * ENTRY.itemsize, ENTRY.itemsize)
        offset, rows, kind, digest = entry.view(ENTRY)[0].item()
        kinds = file.kinds[kind] if kind < len(file.kinds) else ()
        used = [rows * np.dtype(dtype).itemsize * math.prod(shape) for _, dtype, shape in kinds]
        sizes = [-(-nbytes // LINE) * LINE for nbytes in used]
        if not kinds or offset + sum(sizes) > file.entries_at:
            raise FormatError(f"{store.url}: {file.key}: the entry of partition {partition} is not what was written")
        data = found.read(offset, sum(sizes), memory(sum(sizes)))
    if xxhash.xxh3_64_intdigest(data.data) != digest:
        raise FormatError(f"{store.url}: {file.key}: partition {partition} differs from what was written (checksum)")
    columns, begin = {}, 0
    for (name, dtype, shape), nbytes, size in zip(kinds, used, sizes, strict=True):
        columns[name] = data[begin : begin + nbytes].view(dtype).reshape(rows, *shape)
        begin += size
    return columns


class ShuffleStore:
    """The shuffle files of a job in a store; each record, or table of a step's files, is read once."""

    def __init__(self, store: Store, job: str) -> None:
        self._store, self.job = store, job
        self._files: dict[tuple[str, int], ShuffleFile] = {}
        self._tables: set[str] = set()  # steps whose table was read

    def read(self, step: str, index: int, partition: int, memory: Memory = fresh) -> dict[str, AnyArray]:
        """Return a partition of a task in `memory`; `LostError` if it is gone or damaged."""
        if step not in self._tables:
            self._tables.add(step)
            found = read_table(self._store, self.job, step)
            self._files |= {(step, number): file for number, file in enumerate(found)}
        if (step, index) not in self._files:
            record = read_record(self._store, self.job, step, index)
            if record is None:
                raise LostError(step, index, "its record is missing")
            self._files[step, index] = ShuffleFile(**record["shuffle"])
        file = self._files[step, index]
        try:
            return read_partition(self._store, file, partition, memory)
        except (FormatError, MissingError) as error:
            raise LostError(step, index, str(error), file.key) from error


def split_rows(columns: Columns, ends: Sequence[int]) -> Iterator[dict[str, AnyArray]]:
    """Cut columns into consecutive partitions that end at `ends`."""
    begin = 0
    for end in ends:
        yield {name: column[begin:end] for name, column in columns.items()}
        begin = end
