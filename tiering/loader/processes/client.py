"""A rank's side of a buffer that the ranks of one machine share: says what batches need, reads their slots itself."""

from __future__ import annotations

import itertools
import mmap
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from tiering import errors, native
from tiering.artifacts.storage import core_errors
from tiering.errors import InputError, StorageError, TieringError
from tiering.loader.processes.channel import Channel
from tiering.loader.processes.epoch import Key
from tiering.loader.processes.machine import MachineProcesses
from tiering.loader.tables.gather import FeatureRows, TieredFeatures
from tiering.loader.tables.resident import SharedBlock, mapped
from tiering.loader.tables.ssd_buffer import NO_COUNTERS, NO_SLOT
from tiering.readahead.config import ReadaheadConfig, SsdTables

Ids = npt.NDArray[np.int64]
_SENT_AHEAD = 2
"""Batches whose rows are sent and not yet in the owner's plan."""
_SCALED = ("rows_needed", "rows_read", "reads", "read_bytes", "used_bytes")


@dataclass(frozen=True)
class Part:
    """Some of a batch's rows, which are in the buffer."""

    slots: npt.NDArray[np.uint32]
    """Where they lie."""
    places: npt.NDArray[np.uint32]
    """Of each, its place among the rows of the batch; none: all of them, in order."""
    batch_rows: int
    last: bool
    waited: float
    """Seconds."""
    counters: dict[str, Any]
    """What the buffer has done by now, for all ranks."""


class BufferClient:
    """The way of one rank's loader to the owner's buffer.

    Parameters
    ----------
    address
        Where the owner listens.
    what
        What the slots' memory is called in messages.
    features
        This rank's tables.
    page_locked
        Whether a GPU reads the slots: it locks only what the process may write.
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
        """What the owner chose; ``None`` before the first epoch."""
        self.kept_bytes = 0
        """Memory for what this rank has sampled ahead."""
        self._machine, self._address, self._what, self._features = machine, address, what, dict(features)
        self._access = mmap.ACCESS_WRITE if page_locked else mmap.ACCESS_READ
        self._memory: SharedBlock | None = None
        self._inode, self._turns = 0, Counter[int]()
        self._run: ClientEpoch | None = None
        self._own, self._whole, self._before = dict(NO_COUNTERS), dict(NO_COUNTERS), dict(NO_COUNTERS)

    def key(self, epoch: int) -> Key:
        """An epoch that begins, as all ranks call it: its number and how often it was begun before."""
        self._turns[epoch] += 1
        return epoch, self._turns[epoch] - 1

    def adopt(self, memory: SharedBlock, descriptor: int) -> None:
        """Use the memory that this process, the owner, has mapped already."""
        self._memory, self._inode = memory, os.fstat(descriptor).st_ino

    @property
    def memory(self) -> SharedBlock:
        """The memory of all slots, as this process maps it."""
        assert self._memory is not None
        return self._memory

    @property
    def origins(self) -> dict[str, int]:
        """Where the first slot of each type lies in the memory of all slots."""
        sizes = [row_bytes * slots for row_bytes, slots in self.pools]
        return {t: sum(sizes[:pool]) for t, pool in zip(self.tables.types, self._pool_of_types(), strict=True)}

    @contextmanager
    def epoch(self, key: Key) -> Iterator[ClientEpoch | None]:
        """An epoch, once all ranks have begun it; ``None`` where another one has the buffer."""
        channel = self._connect({"wants": "epoch", "epoch": key[0], "turn": key[1]})
        run, process = ClientEpoch(self, channel, key), os.getpid()
        try:
            opened = run.receive(channel)[0]
            self._open(opened, channel.receive_descriptor())
            if opened["alone"]:
                yield None
            else:
                run.slots = self._connect({"wants": "slots", "epoch": key[0], "turn": key[1]})
                self._run = run
                yield run
        finally:
            if os.getpid() == process:
                run.stop()
                run.close()

    def gather(
        self, batch: int, ids: Mapping[str, Ids], outs: Mapping[str, npt.NDArray[np.uint8]], threads: int
    ) -> None:
        """Fill `outs` with the rows of a batch, once they are there; see `SsdBuffer.gather`. Batches come in order."""
        types = self.tables.types
        features = [cast("TieredFeatures", self._features[t]) for t in types]
        number, last = 0, False
        while not last:
            part = self._take(batch, number)
            stats = native.gather_from_slots(
                self.memory.array, self.pools, part.slots, part.places, part.batch_rows, number == 0,
                [f.table for f in features], [ids[t] for t in types], [outs[t] for t in types], threads,
            )  # fmt: skip
            for table, served in zip(features, stats, strict=True):
                table.counters.add(served)
            self.release(batch, number)
            number, last = number + 1, part.last

    def slots(self, batch: int, part: int, ids: Mapping[str, Ids]) -> tuple[dict[str, npt.NDArray[np.uint32]], bool]:
        """Where the rows of a part of a batch lie, once they are there; see `SsdBuffer.slots`."""
        types, firsts = self.tables.types, [0, *itertools.accumulate(slots for _, slots in self.pools)]
        given, slots = self._take(batch, part), {t: np.full(ids[t].size, NO_SLOT) for t in types}
        with core_errors():
            native.spread_slots(
                given.slots, given.places, given.batch_rows, self.tables.begins,
                [firsts[pool] for pool in self._pool_of_types()], [ids[t] for t in types], list(slots.values()),
            )  # fmt: skip
        return slots, given.last

    def release(self, batch: int, part: int) -> None:
        """Nobody in this process reads the slots of a part any more; parts are released in order."""
        assert self._run is not None
        self._run.release()

    def counters(self) -> dict[str, Any]:
        """What the buffer did for this rank, JSON types only: of what was read for all, the share of its rows."""
        done = {name: self._whole[name] - self._before[name] for name in self._whole}
        share = min(1.0, self._own["rows"] / max(1, done["rows"]))
        scaled = {name: round(share * done[name]) for name in _SCALED}
        return {**done, **scaled, **{name: self._own[name] for name in ("batches", "rows", "wait_seconds")}}

    def reset_counters(self) -> None:
        """Begin counting again at zero."""
        self._before, self._own = dict(self._whole), dict(NO_COUNTERS)

    def owner_gone(self) -> errors.DeviceError:
        """What to say where the owner does not answer."""
        return self._machine.ended(0, "or has given up its loader")

    def expect_owner(self) -> None:
        """Raise a `DeviceError` if the owner's process has ended."""
        if not self._machine.is_alive(0):
            raise self._machine.ended(0, "")

    def _take(self, batch: int, number: int) -> Part:
        assert self._run is not None
        part = self._run.take(batch, number)
        self._whole = part.counters
        self._own["rows"] += len(part.slots)
        self._own["wait_seconds"] += part.waited
        self._own["batches"] += part.last
        return part

    def _pool_of_types(self) -> list[int]:
        sizes = [row_bytes for row_bytes, _ in self.pools]
        return [sizes.index(row_bytes) for _, row_bytes, *_ in self.tables.rows]

    def _connect(self, hello: dict[str, Any]) -> Channel:
        try:
            channel = Channel.to(self._address)
            channel.send(hello)
        except OSError as error:
            raise self.owner_gone() from error
        return channel

    def _open(self, opened: dict[str, Any], descriptor: int) -> None:
        try:
            inode = os.fstat(descriptor).st_ino
            if self._memory is None or inode != self._inode:
                array = mapped(descriptor, int(opened["arena"]), self._access)
                array.flags.writeable = False
                self._memory, self._inode = SharedBlock(self._what, array), inode
        finally:
            os.close(descriptor)
        self.pools = [(int(row_bytes), int(slots)) for row_bytes, slots in opened["pools"]]
        self.choice, self.kept_bytes = ReadaheadConfig(**opened["choice"]), int(opened["kept_bytes"])


class ClientEpoch:
    """One epoch of one rank. A thread adds batches, others take their rows and release them, anybody stops it."""

    def __init__(self, client: BufferClient, feed: Channel, key: Key) -> None:
        self._client, self._feed, self._key = client, feed, key
        self.slots: Channel | None = None
        """Where the owner says in which slots rows lie."""
        self._unplanned, self._stopped, self._stopping = 0, False, threading.Lock()

    def add(self, nodes: list[Ids]) -> bool:
        """Say what the next batch needs: ids of each type. False: the epoch has ended, gathers say why."""
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
        """No batch follows."""
        with suppress(OSError):
            self._feed.send({"says": "end"})

    def stop(self) -> None:
        """Nothing is wanted any more: whoever waits returns. What a GPU still reads stays this rank's."""
        with self._stopping:
            if self._stopped:
                return
            self._stopped = True
        self._feed.shut(socket.SHUT_RD)
        if self.slots is not None:
            self.slots.shut()

    def cancel(self) -> None:
        """Leave the epoch: the owner gives all slots to others. It has the core's threads, not this rank."""
        with suppress(OSError):
            self._feed.send({"says": "leave"})

    def close(self) -> None:
        """Leave the epoch and give the descriptors back, once nobody uses them."""
        self.cancel()
        self._feed.close()
        if self.slots is not None:
            self.slots.close()

    def take(self, batch: int, part: int) -> Part:
        """A part of a batch, once its rows are there; held until `release`, as earlier ones may be."""
        assert self.slots is not None
        start = time.perf_counter()
        with self._errors():
            self.slots.send({"batch": batch, "part": part})
        header, payload = self.receive(self.slots)
        slots, places = np.split(np.frombuffer(payload, np.uint32), [int(header["slots"])])
        waited = time.perf_counter() - start
        return Part(slots, places, int(header["batch_rows"]), bool(header["last"]), waited, header["counters"])

    def release(self) -> None:
        """Give back the part that was taken first of those that are held; by a thread of its own, if need be."""
        with suppress(OSError):  # an owner that is gone is named to who takes
            self._feed.send({"says": "release"})

    def receive(self, channel: Channel) -> tuple[dict[str, Any], bytes]:
        """What the owner answers; its error, or that it has ended."""
        with self._errors():
            header, payload = channel.receive(self._client.expect_owner)
        if "error" in header:
            raise _error(header)
        return header, payload

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, ConnectionError) as error:
            if self._stopped:
                raise InputError("the epoch was ended") from None
            raise self._client.owner_gone() from error


def _error(header: Mapping[str, Any]) -> Exception:
    """The owner's error, as it would be in this process."""
    name, message = str(header["error"]), str(header["message"])
    kind = getattr(errors, name, None)
    if kind is StorageError:
        return StorageError(header["errno"], message)
    if isinstance(kind, type) and issubclass(kind, TieringError):
        return kind(message)
    return TieringError(f"the rank that reads for this machine failed: {name}: {message}")
