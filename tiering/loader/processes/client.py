"""A client of the buffer that processes share: it announces its batches' rows, and reads their slots itself."""

from __future__ import annotations

import mmap
import os
import socket
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering import errors
from tiering.errors import DeviceError, InputError, StorageError, TieringError
from tiering.loader.processes.machine import Channel, Key, MachineProcesses
from tiering.loader.processes.peers import map_memory
from tiering.loader.tables.gather import FeatureRows
from tiering.loader.tables.resident import SharedBlock
from tiering.loader.tables.ssd_buffer import NO_COUNTERS, BufferSlots, Slots
from tiering.readahead.config import ReadaheadConfig, SsdTables

Ids = npt.NDArray[np.int64]
_SENT_AHEAD = 2  # batches whose rows are announced and not yet in the owner's plan
_OWN = {"batches": 0, "wait_seconds": 0.0}  # counters of this process alone
_SCALED = ("rows_needed", "rows_read", "reads", "read_bytes", "used_bytes")


class BufferClient(BufferSlots):
    """A process's connection to the owner's buffer, at an address.

    `what`: name of the slots' memory in messages; `features`: this process's tables; `page_locked`: whether a GPU reads
    the slots, whose memory must be writable to be pinned. `choice` is the owner's, ``None`` before the first epoch;
    `memory` contains all slots, as this process maps it; `kept_bytes` is for batches that it samples ahead.
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
        self.kept_bytes = 0
        self._machine, self._address, self._features = machine, address, dict(features)
        self._access = mmap.ACCESS_WRITE if page_locked else mmap.ACCESS_READ
        self.memory = SharedBlock(what, np.empty(0, np.uint8))
        self._turns = Counter[int]()
        self._epoch: ClientEpoch | None = None
        self._own, self._whole, self._before = dict(_OWN), Counter[str](), Counter[str]()

    def key(self, epoch: int) -> Key:
        """Return the key of an epoch that begins, the same for all processes."""
        self._turns[epoch] += 1
        return epoch, self._turns[epoch] - 1

    @contextmanager
    def epoch(self, key: Key) -> Iterator[ClientEpoch | None]:
        """Enter an epoch, once all processes have begun it; ``None`` where another one uses the buffer."""
        channel = self._connect("epoch", key)
        epoch, process = ClientEpoch(self.tables, self._machine, channel), os.getpid()
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
                self.counters()  # the owner may end before the next call
                epoch.stop()
                epoch.close()

    def release(self, batch: int, part: int) -> None:
        """Release the part that is held longest, in any thread; parts are released in order."""
        assert self._epoch is not None
        self._epoch.feed.send_if_open({"says": "release"})  # `receive` names an owner that has ended

    def counters(self) -> dict[str, Any]:
        """Return the buffer's counters, JSON types only: of what was read for all, a share by rows; shares add up."""
        with suppress(DeviceError, EOFError, OSError), closing(self._connect("counters", (0, 0))) as channel:
            self._whole = Counter(channel.receive(lambda: self._machine.expect_alive(0))[0])  # else what it said last
        done = {name: self._whole[name] - self._before[name] for name in (*NO_COUNTERS, "before", "own")}
        rows, first, own = max(1, done["rows"]), done.pop("before"), done.pop("own")
        shares = {name: (first + own) * done[name] // rows - first * done[name] // rows for name in _SCALED}
        return {**done, **shares, **self._own, "rows": own}

    def reset_counters(self) -> None:
        """Begin counting again at zero."""
        self.counters()
        self._before, self._own = self._whole.copy(), dict(_OWN)

    def _take(self, batch: int, part: int) -> tuple[Slots, Slots, int, bool]:
        assert self._epoch is not None
        start = time.perf_counter()
        assert self._epoch.slots is not None
        header, payload = self._epoch.receive(self._epoch.slots, {"batch": batch, "part": part})
        both, count, last = np.frombuffer(payload, np.uint32), int(header["slots"]), bool(header["last"])
        self._own["wait_seconds"] += time.perf_counter() - start
        self._own["batches"] += last
        return both[:count], both[count:], int(header["batch_rows"]), last

    def _connect(self, wants: str, key: Key) -> Channel:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(f"\0{self._address}")
            channel = Channel(connection)
            channel.send({"wants": wants, "epoch": key[0], "turn": key[1]})
        except OSError as error:
            connection.close()
            raise self._machine.owner_ended() from error
        return channel

    def _open(self, reply: dict[str, Any]) -> None:
        if not self.memory.array.size:  # the owner has one buffer
            pid, nbytes = self._machine.group.process(0).pid, int(reply["bytes"])
            array = map_memory(pid, int(reply["memory"]), "tiering-buffer", nbytes, self._access)
            if array is None:
                raise self._machine.owner_ended()
            array.flags.writeable = False
            self.memory = SharedBlock(self.memory.path, array)
        self.pools = [(int(row_bytes), int(slots)) for row_bytes, slots in reply["pools"]]
        self.choice, self.kept_bytes = ReadaheadConfig(**reply["choice"]), int(reply["kept_bytes"])


class ClientEpoch:
    """One epoch of one process: a thread adds batches, others take their rows and release them, any thread stops."""

    def __init__(self, tables: SsdTables, machine: MachineProcesses, feed: Channel) -> None:
        self._tables, self._machine, self.feed = tables, machine, feed
        self.slots: Channel | None = None
        self._unplanned, self._stopped = 0, False

    def add(self, nodes: list[Ids]) -> bool:
        """Announce the next batch by the ids of each type; returns False if the epoch has ended: gathers say why."""
        rows = self._tables.among(dict(zip(self._tables.types, nodes, strict=True)))
        try:
            self.feed.send({"says": "rows"}, rows.view(np.uint8).data)
            self._unplanned += 1
            while self._unplanned > _SENT_AHEAD:
                self.receive(self.feed)
                self._unplanned -= 1
        except (TieringError, OSError):
            return False
        return True

    def end(self) -> None:
        """Announce that no batch follows."""
        self.feed.send_if_open({"says": "end"})

    def stop(self) -> None:
        """End all waits. Slots that a GPU still reads stay this process's."""
        self._stopped = True
        self.feed.shut(socket.SHUT_RD)
        if self.slots is not None:
            self.slots.shut()

    def cancel(self) -> None:
        """Leave the epoch: the owner releases all slots. It has the core's threads, not this process."""
        self.feed.send_if_open({"says": "leave"})

    def close(self) -> None:
        """Leave the epoch and close its channels, once nobody uses them."""
        self.cancel()
        self.feed.close()
        if self.slots is not None:
            self.slots.close()

    def receive(self, channel: Channel, question: dict[str, Any] | None = None) -> tuple[dict[str, Any], bytes]:
        """Return a message of the owner, or its answer; raise its error, or a `DeviceError` if it has ended."""
        try:
            if question is not None:
                channel.send(question)
            header, payload = channel.receive(lambda: self._machine.expect_alive(0))
        except (EOFError, ConnectionError) as error:
            if self._stopped:
                raise InputError("the epoch was ended") from None
            raise self._machine.owner_ended() from error
        if "error" not in header:
            return header, payload
        name, text = str(header["error"]), str(header["message"])
        kind = getattr(errors, name, None)
        if kind is StorageError:
            raise StorageError(header["errno"], text)
        if isinstance(kind, type) and issubclass(kind, TieringError):
            raise kind(text)
        raise TieringError(f"the process that reads for this machine failed: {name}: {text}")
