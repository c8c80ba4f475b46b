"""A client of the buffer that processes share: it announces its batches' rows, and reads their slots itself."""

from __future__ import annotations

import itertools
import mmap
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from tiering import errors, native
from tiering.errors import DeviceError, InputError, StorageError, TieringError
from tiering.loader.processes.channel import Channel
from tiering.loader.processes.epoch import Key
from tiering.loader.processes.machine import MachineProcesses
from tiering.loader.processes.peers import map_memory
from tiering.loader.tables.gather import TieredFeatures
from tiering.loader.tables.resident import SharedBlock
from tiering.loader.tables.rows import FeatureRows
from tiering.loader.tables.ssd_buffer import NO_COUNTERS, NO_SLOT
from tiering.readahead.config import ReadaheadConfig, SsdTables

Ids = npt.NDArray[np.int64]
_SENT_AHEAD = 2
"""Batches whose rows are announced and not yet in the owner's plan."""
_SCALED = ("rows_needed", "rows_read", "reads", "read_bytes", "used_bytes")


@dataclass(frozen=True)
class Part:
    """Some of a batch's rows, which are in the buffer."""

    slots: npt.NDArray[np.uint32]
    """Slots of the rows."""
    positions: npt.NDArray[np.uint32]
    """Positions of the rows in the batch; empty: all rows, in order."""
    batch_rows: int
    last: bool
    waited: float
    """Seconds until the rows were there."""
    counters: dict[str, Any]
    """Counters of the buffer, for all processes."""


class BufferClient:
    """A process's connection to the owner's buffer.

    `address`: where the owner listens; `what`: name of the slots' memory in messages; `features`: this process's
    tables; `page_locked`: whether a GPU reads the slots, whose memory must be writable to be pinned.
    """

    def __init__(
        self,
        machine: MachineProcesses,
        address: str,
        what: str,
        tables: SsdTables,
        features: Mapping[str, FeatureRows],
        page_locked: bool,
    ) -> None:
        self.tables, self.pools = tables, list[tuple[int, int]]()
        self.choice: ReadaheadConfig | None = None
        """ReadaheadConfig of the owner; ``None`` before the first epoch."""
        self.kept_bytes = 0
        """Memory for batches that this process samples ahead."""
        self._machine, self._address, self._what, self._features = machine, address, what, dict(features)
        self._access = mmap.ACCESS_WRITE if page_locked else mmap.ACCESS_READ
        self._memory: SharedBlock | None = None
        self._turns = Counter[int]()
        self._epoch: ClientEpoch | None = None
        self._own, self._whole, self._before = dict(NO_COUNTERS), dict(NO_COUNTERS), dict(NO_COUNTERS)

    def key(self, epoch: int) -> Key:
        """Return the key of an epoch that begins, the same for all processes."""
        self._turns[epoch] += 1
        return epoch, self._turns[epoch] - 1

    def adopt(self, memory: SharedBlock) -> None:
        """Use the memory that this process, the owner, has made."""
        self._memory = memory

    @property
    def memory(self) -> SharedBlock:
        """Memory of all slots, as this process maps it."""
        assert self._memory is not None
        return self._memory

    @property
    def origins(self) -> dict[str, int]:
        """Offset of the first slot of each type in the memory of all slots."""
        sizes = [row_bytes * slots for row_bytes, slots in self.pools]
        return {t: sum(sizes[:pool]) for t, pool in zip(self.tables.types, self._pool_of_types(), strict=True)}

    @contextmanager
    def epoch(self, key: Key) -> Iterator[ClientEpoch | None]:
        """Enter an epoch, once all processes have begun it; ``None`` where another one uses the buffer."""
        channel = self._connect("epoch", key)
        epoch, process = ClientEpoch(self, channel), os.getpid()
        try:
            opened = epoch.receive(channel)[0]
            self._open(opened)
            if opened["alone"]:
                yield None
            else:
                epoch.slots = self._connect("slots", key)
                self._epoch = epoch
                yield epoch
        finally:
            if os.getpid() == process:
                epoch.stop()
                epoch.close()

    def gather(
        self, batch: int, ids: Mapping[str, Ids], outs: Mapping[str, npt.NDArray[np.uint8]], threads: int
    ) -> None:
        """Fill `outs` with the rows of a batch; see `SsdBuffer.gather`. Batches come in order."""
        types = self.tables.types
        features = [cast("TieredFeatures", self._features[t]) for t in types]
        number, last = 0, False
        while not last:
            part = self._take(batch, number)
            stats = native.gather_from_slots(
                self.memory.array, self.pools, part.slots, part.positions, part.batch_rows, number == 0,
                [f.table for f in features], [ids[t] for t in types], [outs[t] for t in types], threads,
            )  # fmt: skip
            for table, served in zip(features, stats, strict=True):
                table.counters.add(served)
            self.release(batch, number)
            number, last = number + 1, part.last

    def slots(self, batch: int, part: int, ids: Mapping[str, Ids]) -> tuple[dict[str, npt.NDArray[np.uint32]], bool]:
        """Return the slots of a part of a batch; see `SsdBuffer.slots`."""
        types, firsts = self.tables.types, [0, *itertools.accumulate(slots for _, slots in self.pools)]
        taken, slots = self._take(batch, part), {t: np.full(ids[t].size, NO_SLOT) for t in types}
        native.spread_slots(
            taken.slots, taken.positions, taken.batch_rows, self.tables.begins,
            [firsts[pool] for pool in self._pool_of_types()], [ids[t] for t in types], list(slots.values()),
        )  # fmt: skip
        return slots, taken.last

    def release(self, batch: int, part: int) -> None:
        """Release the slots of a part, which nobody in this process reads any more; parts are released in order."""
        assert self._epoch is not None
        self._epoch.release()

    def counters(self) -> dict[str, Any]:
        """Return the buffer's counters, JSON types only: of what was read for all, this process's fraction."""
        done = {name: self._whole[name] - self._before[name] for name in self._whole}
        fraction = min(1.0, self._own["rows"] / max(1, done["rows"]))
        scaled = {name: round(fraction * done[name]) for name in _SCALED}
        return {**done, **scaled, **{name: self._own[name] for name in ("batches", "rows", "wait_seconds")}}

    def reset_counters(self) -> None:
        """Begin counting again at zero."""
        self._before, self._own = dict(self._whole), dict(NO_COUNTERS)

    def owner_error(self) -> DeviceError:
        """Return the error for an owner that does not answer."""
        return self._machine.ended(0, "or has given up its loader")

    def expect_owner(self) -> None:
        """Raise a `DeviceError` if the owner's process has ended."""
        self._machine.expect_alive(0)

    def _take(self, batch: int, number: int) -> Part:
        assert self._epoch is not None
        part = self._epoch.take(batch, number)
        self._whole = part.counters
        self._own["rows"] += len(part.slots)
        self._own["wait_seconds"] += part.waited
        self._own["batches"] += part.last
        return part

    def _pool_of_types(self) -> list[int]:
        sizes = [row_bytes for row_bytes, _ in self.pools]
        return [sizes.index(row_bytes) for _, row_bytes, *_ in self.tables.rows]

    def _connect(self, wants: str, key: Key) -> Channel:
        try:
            channel = Channel.connect(self._address)
            channel.send({"wants": wants, "epoch": key[0], "turn": key[1]})
        except OSError as error:
            raise self.owner_error() from error
        return channel

    def _open(self, reply: dict[str, Any]) -> None:
        if self._memory is None:  # the owner has one buffer
            pid, nbytes = self._machine.group.process(0).pid, int(reply["bytes"])
            array = map_memory(pid, int(reply["memory"]), "tiering-buffer", nbytes, self._access)
            if array is None:
                raise self.owner_error()
            array.flags.writeable = False
            self._memory = SharedBlock(self._what, array)
        self.pools = [(int(row_bytes), int(slots)) for row_bytes, slots in reply["pools"]]
        self.choice, self.kept_bytes = ReadaheadConfig(**reply["choice"]), int(reply["kept_bytes"])


class ClientEpoch:
    """One epoch of one process: a thread adds batches, others take their rows and release them, any thread stops it."""

    def __init__(self, client: BufferClient, feed: Channel) -> None:
        self._client, self._feed = client, feed
        self.slots: Channel | None = None
        """Channel on which the owner says in which slots rows lie."""
        self._unplanned, self._stopped, self._stopping = 0, False, threading.Lock()

    def add(self, nodes: list[Ids]) -> bool:
        """Announce the next batch by the ids of each type; returns False if the epoch has ended: gathers say why."""
        tables = self._client.tables
        rows = tables.among(dict(zip(tables.types, nodes, strict=True)))
        try:
            self._feed.send({"says": "rows"}, rows.view(np.uint8).data)
            self._unplanned += 1
            while self._unplanned > _SENT_AHEAD:
                self.receive(self._feed)
                self._unplanned -= 1
        except (TieringError, OSError):
            return False
        return True

    def end(self) -> None:
        """Announce that no batch follows."""
        self._feed.send_if_open({"says": "end"})

    def stop(self) -> None:
        """End all waits. Slots that a GPU still reads stay this process's."""
        with self._stopping:
            if self._stopped:
                return
            self._stopped = True
        self._feed.shut(socket.SHUT_RD)
        if self.slots is not None:
            self.slots.shut()

    def cancel(self) -> None:
        """Leave the epoch: the owner releases all slots. It has the core's threads, not this process."""
        self._feed.send_if_open({"says": "leave"})

    def close(self) -> None:
        """Leave the epoch and close its channels, once nobody uses them."""
        self.cancel()
        self._feed.close()
        if self.slots is not None:
            self.slots.close()

    def take(self, batch: int, part: int) -> Part:
        """Wait for a part of a batch; it is held until `release`, as earlier ones may be."""
        assert self.slots is not None
        start = time.perf_counter()
        with self._owner_errors():
            self.slots.send({"batch": batch, "part": part})
        header, payload = self.receive(self.slots)
        slots, positions = np.split(np.frombuffer(payload, np.uint32), [int(header["slots"])])
        waited = time.perf_counter() - start
        return Part(slots, positions, int(header["batch_rows"]), bool(header["last"]), waited, header["counters"])

    def release(self) -> None:
        """Release the part that is held longest, in any thread."""
        self._feed.send_if_open({"says": "release"})  # `take` names an owner that has ended

    def receive(self, channel: Channel) -> tuple[dict[str, Any], bytes]:
        """Return a message of the owner; raise its error, or a `DeviceError` if it has ended."""
        with self._owner_errors():
            header, payload = channel.receive(self._client.expect_owner)
        if "error" in header:
            raise _error_of(header)
        return header, payload

    @contextmanager
    def _owner_errors(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, ConnectionError) as error:
            if self._stopped:
                raise InputError("the epoch was ended") from None
            raise self._client.owner_error() from error


def _error_of(message: Mapping[str, Any]) -> Exception:
    """Return the owner's error as it would be in this process."""
    name, text = str(message["error"]), str(message["message"])
    kind = getattr(errors, name, None)
    if kind is StorageError:
        return StorageError(message["errno"], text)
    if isinstance(kind, type) and issubclass(kind, TieringError):
        return kind(text)
    return TieringError(f"the rank that reads for this machine failed: {name}: {text}")
