"""An epoch that the processes of one machine read through one buffer, on the side of the buffer's owner."""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.errors import DeviceError, InputError
from tiering.loader.processes.channel import Channel
from tiering.loader.processes.machine import MachineProcesses
from tiering.loader.tables.ssd_buffer import SsdBuffer
from tiering.readahead.config import ReadaheadConfig

Key = tuple[int, int]  # number of an epoch, and how many times it was begun before
Slots = npt.NDArray[np.uint32]


@dataclass
class Member:
    """One process in an epoch."""

    number: int  # number of the process in the group
    feed: Channel  # channel on which the process says what it needs
    rows: deque[npt.NDArray[np.uint32]] = field(default_factory=deque)  # rows of its next batches, not yet in the plan
    batches: deque[int] = field(default_factory=deque)  # numbers in the plan of its batches that are not released
    released: int = 0  # number of its batches that were released
    part: int = 0  # first part of its first batch that is not released
    held: deque[bool] = field(default_factory=deque)  # parts it holds from that one on: is each the last of its batch
    adding: bool = False  # whether a batch of it is being added to the plan
    ended: bool = False  # whether all its batches were announced
    left: bool = False  # whether the process wants no batch any more
    completed: bool = False  # whether the process had all its batches when it left
    gone: bool = False  # whether no batch of it is in the plan any more
    giving: threading.Thread | None = None  # thread that tells it in which slots rows lie


def error_message(error: BaseException) -> dict[str, Any]:
    """Return an error as a message of a channel."""
    return {"error": type(error).__name__, "message": str(error), "errno": getattr(error, "errno", None)}


class SharedEpoch:
    """One epoch of all processes of a machine; `changed` guards its state and that of its members."""

    def __init__(self, key: Key, machine: MachineProcesses, changed: threading.Condition) -> None:
        self.key, self.machine, self.changed = key, machine, changed
        self.since = self.warned = time.monotonic()
        self.members: dict[int, Member] = {}
        self.started = False  # whether all processes have begun it
        # Message that processes get instead of slots. No exception: its frames would keep the owner's loader.
        self.error: dict[str, Any] | None = None
        self.refused = 0.0  # time when the owner, no member then, refused the epoch; 0: it did not
        self.core: native.RowBuffer | None = None
        self._buffer: SsdBuffer | None = None
        self._planned, self._num_planned = False, 0

    @property
    def finished(self) -> bool:
        """Whether all members are done with it."""
        return all(member.gone for member in self.members.values())

    def fail(self, error: BaseException) -> None:
        """End the epoch for all members; the first error counts."""
        with self.changed:
            self.error = self.error or error_message(error)
            members, core = list(self.members.values()), self.core
            self.changed.notify_all()
        if core is not None:
            core.stop()
        for member in members:
            member.feed.send_if_open(self.error)

    def run(self, buffer: SsdBuffer, choice: ReadaheadConfig, kept_bytes: int) -> None:
        """Read the rows of all members' batches into the buffer, until the last member has left."""
        self._buffer = buffer
        try:
            with buffer.epoch(choice) as self.core:
                opened = {
                    "alone": self.core is None, "pools": buffer.pools, "choice": vars(choice), "kept_bytes": kept_bytes,
                    "memory": buffer.descriptor, "bytes": buffer.arena.size,
                }  # fmt: skip
                for member in self.members.values():
                    member.feed.send_if_open(opened)
                try:
                    if self.core is not None:
                        self._plan_batches(self.core)
                except (OSError, ValueError) as error:
                    self.fail(error)
                with self.changed:
                    self._planned = True
                    self.changed.notify_all()
                    self.changed.wait_for(lambda: self.finished)
        except Exception as error:
            self.fail(error)
        with self.changed:
            self.changed.wait_for(lambda: self.finished)
            self.core = None

    def serve_feed(self, member: Member) -> None:
        """Receive what a member needs, until it leaves the epoch or its process ends; then release all its slots."""
        kind = ""
        try:
            while kind != "leave":
                header, payload = member.feed.receive(lambda: self.machine.expect_alive(member.number))
                kind = header["says"]
                if kind == "release":
                    self.release(member)
                    continue
                with self.changed:
                    if kind == "rows":
                        member.rows.append(np.frombuffer(payload, np.uint32))
                    member.ended = member.ended or kind == "end"
                    self.changed.notify_all()
        except (EOFError, OSError, DeviceError):
            self.fail(self.machine.ended(member.number, f"in the middle of epoch {self.key[0]}"))
        with self.changed:
            member.left = True
            self.changed.notify_all()
        self._release_held(member)
        if member.giving is not None:
            member.giving.join()
            self._release_held(member)
        member.completed = member.ended and not member.batches
        self._drain(member)
        with self.changed:
            member.gone = True
            self.changed.notify_all()

    def serve_slots(self, member: Member, channel: Channel) -> None:
        """Tell a member in which slots the rows of its batches lie, batch after batch, until an error."""
        while True:
            header, _ = channel.receive(lambda: self.machine.expect_alive(member.number))
            try:
                slots, positions, batch_rows, last = self._take(member, int(header["batch"]), int(header["part"]))
            except Exception as error:
                channel.send(self.error or error_message(error))
                return
            assert self._buffer is not None
            channel.send(
                {"slots": len(slots), "batch_rows": batch_rows, "last": last, "counters": self._buffer.counters()},
                np.concatenate([slots, positions]).view(np.uint8).data,
            )

    def _plan_batches(self, core: native.RowBuffer) -> None:
        """Plan batch i of every member before batch i + 1 of any, as they may wait for each other at each step."""
        members = [self.members[number] for number in sorted(self.members)]
        while members and self.error is None:
            for member in list(members):
                with self.changed:
                    self.changed.wait_for(lambda m=member: m.rows or m.ended or m.left or self.error)  # type: ignore[misc]
                    if member.left or not member.rows:
                        members.remove(member)
                        continue
                    rows, member.adding = member.rows.popleft(), True
                more = core.add_rows(rows)
                with self.changed:
                    member.adding = False
                    if more:
                        member.batches.append(self._num_planned)
                        self._num_planned += 1
                    self.changed.notify_all()
                if not more:
                    return  # readers met an error, which `_take` raises, or the epoch was stopped
                member.feed.send_if_open({"planned": 1})
        core.end()

    def _take(self, member: Member, batch: int, part: int) -> tuple[Slots, Slots, int, bool]:
        """Wait for the next part of a member's batches, by the member's own numbers; see `RowBuffer::wait`."""
        with self.changed:
            self.changed.wait_for(
                lambda: len(member.batches) > batch - member.released or member.left or self.error or self._planned
            )
            ahead = batch - member.released
            planned = member.batches[ahead] if ahead < len(member.batches) else self._num_planned  # the core says why
        core = self.core
        if self.error is not None or core is None or self._buffer is None:
            raise InputError("the epoch was ended")
        with self._buffer.errors():
            taken = core.take(planned, part)
        with self.changed:
            member.held.append(taken[3])
        return taken

    def release(self, member: Member) -> None:
        """Release the part that a member has held longest."""
        with self.changed:
            batch, part, last = member.batches[0], member.part, member.held.popleft()
            member.part = 0 if last else part + 1
            if last:
                member.batches.popleft()
                member.released += 1
        with suppress(OSError, ValueError):  # the core's epoch has ended
            if self.core is not None:
                self.core.release(batch, part)

    def _release_held(self, member: Member) -> None:
        while member.held:
            self.release(member)

    def _drain(self, member: Member) -> None:
        """Release the slots reserved for a member that has left, as their rows arrive."""
        while self.core is not None:
            with self.changed:
                self.changed.wait_for(lambda: member.batches or not member.adding or self.error)
                if self.error is not None or not member.batches:
                    return
                batch, part, member.part = member.batches.popleft(), member.part, 0
            try:
                self.core.wait(batch, part)  # and releases it
            except (OSError, ValueError):
                return
