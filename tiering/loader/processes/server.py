"""A buffer that the processes of one machine read through, on the side of its owner: the server, and its epochs."""

from __future__ import annotations

import logging
import os
import select
import socket
import threading
import time
import weakref
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.util import Finalize
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.errors import DeviceError, InputError
from tiering.loader.processes.machine import Channel, Key, MachineProcesses
from tiering.loader.tables.ssd_buffer import SsdBuffer
from tiering.readahead.config import ReadaheadConfig

Slots = npt.NDArray[np.uint32]
_log = logging.getLogger("tiering.loader")
_WATCH_SECONDS = 0.25
_REFUSAL_SECONDS = 10.0  # in which late processes can ask why an epoch was refused, though its loader is gone
_PATIENCE = 60.0  # seconds until a warning names processes that begin no epoch, and of the owner's wait at its end


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
    completed: bool | None = None  # whether the process had all its batches when it left; none: it has not left
    gone: bool = False  # whether no batch of it is in the plan any more
    giving: threading.Thread | None = None  # thread that tells it in which slots rows lie


def error_message(error: BaseException) -> dict[str, Any]:
    """Return an error as a message of a channel."""
    return {"error": type(error).__name__, "message": str(error), "errno": getattr(error, "errno", None)}


class SharedEpoch:
    """One epoch of all processes of a machine; `changed` guards its state and its members' state."""

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
                        self._plan_batches(self.core, buffer)
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
        with self.changed:
            member.completed = member.ended and not member.batches
            self.changed.notify_all()
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
            channel.send(
                {"slots": len(slots), "batch_rows": batch_rows, "last": last},
                np.concatenate([slots, positions]).view(np.uint8).data,
            )

    def _plan_batches(self, core: native.RowBuffer, buffer: SsdBuffer) -> None:
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
                        buffer.rows_of[member.number] += rows.size
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


class BufferServer:
    """A server for the processes of this machine, as long as `loader` lives and epochs are under way."""

    def __init__(self, machine: MachineProcesses, loader: object) -> None:
        self.machine, self.changed = machine, threading.Condition()
        # The buffer that epochs fill, its configuration, and bytes of sampled batches that each process keeps.
        self.offered: tuple[SsdBuffer, ReadaheadConfig, int] | None = None
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind("")  # the kernel picks an abstract address that nobody has, nowhere in the file system
        self._listener.listen(128)
        self.address = self._listener.getsockname().decode().lstrip("\0")
        self._epochs: dict[Key, SharedEpoch] = {}
        self._closing, self._process = False, os.getpid()
        alive = weakref.ref(self)  # at the end of the process, also of one of `multiprocessing`, which runs no `atexit`
        Finalize(self, lambda: None if (server := alive()) is None else server.end_with_interpreter(), exitpriority=0)
        weakref.finalize(loader, self.close).atexit = False
        threading.Thread(target=self._accept, name="tiering-buffer-server", daemon=True).start()

    def refuse(self, key: Key, error: BaseException) -> None:
        """Tell the processes that begin this epoch why there is none."""
        epoch = self._find_epoch(key)
        epoch.refused = time.monotonic()
        epoch.fail(error)

    def close(self) -> None:
        """Stop listening, once epochs that are under way have ended."""
        if self._process != os.getpid():  # a fork has no such threads, and may find the condition taken
            return
        with self.changed:
            self._closing = True
            self.changed.notify_all()

    def end_with_interpreter(self) -> None:
        """Let processes come to the end of epochs that the owner has completed; then end the core's threads."""
        if self._process != os.getpid():
            return
        with self.changed:
            self.changed.wait_for(lambda: not self._has_unheard_refusal(), _REFUSAL_SECONDS)
            running = [epoch for epoch in self._epochs.values() if epoch.core is not None]
            for run in running:
                run.members[0].feed.shut(socket.SHUT_RD)  # what the owner sent before is still received
                self.changed.wait_for(lambda r=run: r.finished or r.error or r.members[0].completed is False, _PATIENCE)  # type: ignore[misc]
                # A thread of this server that returns from the core once the interpreter has ended would abort.
                self.changed.wait_for(lambda r=run: r.core is None or not r.finished, _PATIENCE)  # type: ignore[misc]
        for epoch in running:
            if (core := epoch.core) is not None:
                epoch.fail(self.machine.ended(0, f"in the middle of epoch {epoch.key[0]}"))
                core.cancel()

    def _find_epoch(self, key: Key) -> SharedEpoch:
        """Return the epoch of this key, which begins with the first process that asks."""
        with self.changed:
            return self._epochs.setdefault(key, SharedEpoch(key, self.machine, self.changed))

    def _accept(self) -> None:
        """Accept connections of this machine's processes, and nobody else's; watch for those that do not come."""
        numbers = {self.machine.group.process(k).pid: k for k in range(self.machine.size)}
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        while not self._is_over():
            if not poll.poll(_WATCH_SECONDS * 1000):
                self._watch()
                continue
            channel = Channel(self._listener.accept()[0])
            number = numbers.get(channel.peer)
            if number is None:
                channel.close()
                continue
            threading.Thread(target=self._serve, args=(channel, number), name="tiering-rank", daemon=True).start()
        self._listener.close()
        with self.changed:
            begun = [epoch for epoch in self._epochs.values() if epoch.members]
        for epoch in begun:
            epoch.fail(self.machine.owner_ended())

    def _is_over(self) -> bool:
        with self.changed:
            running = any(epoch.started for epoch in self._epochs.values())
            return self._closing and not running and not self._has_unheard_refusal()

    def _has_unheard_refusal(self) -> bool:
        """Return whether a process may still ask for an epoch that was refused."""
        late = time.monotonic() - _REFUSAL_SECONDS
        return any(e.refused > late and len(e.members) < self.machine.size - 1 for e in self._epochs.values())

    def _watch(self) -> None:
        """Fail epochs that wait for a process that has ended; name once a minute the processes that others wait for."""
        with self.changed:
            waiting = [e for e in self._epochs.values() if e.members and not e.started and e.error is None]
        for epoch in waiting:
            missing = [number for number in range(self.machine.size) if number not in epoch.members]
            for number in missing:
                if not self.machine.group.process(number).alive():
                    epoch.fail(self.machine.ended(number, f"and does not start epoch {epoch.key[0]}"))
            now = time.monotonic()
            if missing and now - epoch.warned > _PATIENCE:
                epoch.warned = now
                names = ", ".join(self.machine.name(number) for number in missing)
                _log.warning(
                    "epoch %d: after %.0f s the other processes still wait for %s to start it", epoch.key[0],
                    now - epoch.since, names,
                )  # fmt: skip

    def _serve(self, channel: Channel, number: int) -> None:
        """Serve a connection: what a process needs in an epoch, or where its rows lie."""
        try:
            header, _ = channel.receive(lambda: self.machine.expect_alive(number))
            if header["wants"] == "counters":
                channel.send({} if self.offered is None else self.offered[0].counters_of(number))
                return
            epoch = self._find_epoch((int(header["epoch"]), int(header["turn"])))
            if header["wants"] == "slots":
                with self.changed:
                    member = epoch.members[number]
                    if member.left:
                        return
                    member.giving = threading.current_thread()
                epoch.serve_slots(member, channel)
            else:
                self._serve_member(epoch, Member(number, channel))
        except (EOFError, OSError, DeviceError):
            pass  # the thread that serves the feed reports it
        finally:
            channel.close()

    def _serve_member(self, epoch: SharedEpoch, member: Member) -> None:
        with self.changed:
            epoch.members[member.number] = member
            refused = epoch.error
            begins = len(epoch.members) == self.machine.size and refused is None
            epoch.started = epoch.started or begins
            self.changed.notify_all()
        if begins:
            threading.Thread(target=self._run, args=(epoch,), name="tiering-merge", daemon=True).start()
        if refused is not None:
            member.feed.send_if_open(refused)
        self._watch()
        epoch.serve_feed(member)
        with self.changed:
            if not epoch.started and len(epoch.members) == self.machine.size and epoch.finished:
                self._epochs.pop(epoch.key, None)

    def _run(self, epoch: SharedEpoch) -> None:
        """Run one epoch, from the moment that all processes have begun it to the last that leaves."""
        assert self.offered is not None
        with self.changed:  # an epoch that all have left releases the buffer in a moment
            self.changed.wait_for(
                lambda: not any(e.started and e.finished for e in self._epochs.values() if e is not epoch)
            )
        epoch.run(*self.offered)
        with self.changed:
            self._epochs.pop(epoch.key, None)
            self.changed.notify_all()
