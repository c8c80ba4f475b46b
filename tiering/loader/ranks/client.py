"""A rank's side of a buffer that the ranks of one machine share: says what batches need, copies their rows itself."""

from __future__ import annotations

import mmap
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering import errors, native
from tiering.errors import InputError, StorageError, TieringError
from tiering.loader.gather import TieredFeatures
from tiering.loader.ranks.channel import Channel
from tiering.loader.ranks.epoch import Key
from tiering.loader.ranks.machine import MachineRanks
from tiering.loader.resident import mapped
from tiering.loader.ssd_buffer import NO_COUNTERS
from tiering.lookahead.choice import Choice, SsdTables

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
    first: bool
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
    features
        This rank's tables.
    """

    def __init__(
        self, machine: MachineRanks, address: str, tables: SsdTables, features: Mapping[str, TieredFeatures]
    ) -> None:
        self.tables, self.pools = tables, list[tuple[int, int]]()
        self.choice: Choice | None = None
        """What the owner chose; ``None`` before the first epoch."""
        self.kept_bytes = 0
        """Memory for what this rank has sampled ahead."""
        self._machine, self._address, self._features = machine, address, dict(features)
        self._arena: npt.NDArray[np.uint8] | None = None
        self._inode, self._turns = 0, Counter[int]()
        self._run: ClientEpoch | None = None
        self._own, self._whole, self._before = dict(NO_COUNTERS), dict(NO_COUNTERS), dict(NO_COUNTERS)

    def key(self, epoch: int) -> Key:
        """An epoch that begins, as all ranks call it: its number and how often it was begun before."""
        self._turns[epoch] += 1
        return epoch, self._turns[epoch] - 1

    def adopt(self, arena: npt.NDArray[np.uint8], descriptor: int) -> None:
        """Use the memory that this process, the owner, has mapped already."""
        self._arena, self._inode = arena, os.fstat(descriptor).st_ino

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
        features, run = [self._features[t] for t in types], self._run
        assert run is not None and self._arena is not None
        tables = [f.table for f in features]
        for part in run.parts():
            stats = native.gather_from_slots(
                self._arena, self.pools, part.slots, part.places, part.batch_rows, part.first, tables,
                [ids[t] for t in types], [outs[t] for t in types], threads,
            )  # fmt: skip
            for table, served in zip(features, stats, strict=True):
                table.counters.add(served)
            self._whole = part.counters
            self._own["rows"] += len(part.slots)
            self._own["wait_seconds"] += part.waited
        self._own["batches"] += 1

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
            if self._arena is None or inode != self._inode:
                self._arena, self._inode = mapped(descriptor, int(opened["arena"]), mmap.ACCESS_READ), inode
        finally:
            os.close(descriptor)
        self.pools = [(int(row_bytes), int(slots)) for row_bytes, slots in opened["pools"]]
        self.choice, self.kept_bytes = Choice(**opened["choice"]), int(opened["kept_bytes"])


class ClientEpoch:
    """One epoch of one rank. A thread adds batches, another gathers them, anybody stops it."""

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
        """Leave the epoch: nothing is wanted any more. Whoever waits returns."""
        with self._stopping:
            if self._stopped:
                return
            self._stopped = True
        with suppress(OSError):
            self._feed.send({"says": "leave"})
        self._feed.shut(socket.SHUT_RD)
        if self.slots is not None:
            self.slots.shut()

    def cancel(self) -> None:
        """The owner has the core's threads, not this rank."""

    def close(self) -> None:
        """Give the descriptors back, once nobody uses them."""
        self._feed.close()
        if self.slots is not None:
            self.slots.close()

    def parts(self) -> Iterator[Part]:
        """The parts of the next batch, each once its rows are there, and its own until the next is asked for."""
        assert self.slots is not None
        first, last = True, False
        while not last:
            start = time.perf_counter()
            with self._errors():
                self.slots.send({"wants": "slots"})
            header, payload = self.receive(self.slots)
            slots, places = np.split(np.frombuffer(payload, np.uint32), [int(header["slots"])])
            waited, last = time.perf_counter() - start, bool(header["last"])
            yield Part(slots, places, int(header["batch_rows"]), first, waited, header["counters"])
            first = False
            with self._errors():
                self.slots.send({"wants": "release"})

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
