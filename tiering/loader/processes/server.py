"""The owner's side of a buffer that the ranks of one machine share: takes the rows that their batches need, fills the
buffer in the order of the batches of all, and says where rows lie.

The owner, like every other rank, is a client of it (`tiering.loader.processes.client`).
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
import weakref
from contextlib import suppress
from multiprocessing.util import Finalize
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.errors import DeviceError
from tiering.loader.processes.channel import Channel, listen
from tiering.loader.processes.epoch import Key, Member, RefusalError, Run, tell, told
from tiering.loader.processes.machine import MachineProcesses
from tiering.loader.tables.ssd_buffer import SsdBuffer
from tiering.readahead.config import ReadaheadConfig

_log = logging.getLogger("tiering.loader")
Places = npt.NDArray[np.uint32]
_WATCH_SECONDS = 0.25
_REFUSAL_SECONDS = 10.0
"""Seconds in which ranks that are late can ask why there is no epoch, though the owner has given up its loader."""
_PATIENCE = 60.0
"""Seconds until a warning says which ranks do not begin an epoch; the owner, at its end, waits as long for others."""


class BufferServer:
    """Listens for the ranks of this machine, as long as the loader that owns it lives and epochs are under way."""

    def __init__(self, machine: MachineProcesses) -> None:
        self._serving = Serving(machine)
        self.address = self._serving.address
        """Where ranks connect."""
        weakref.finalize(self, self._serving.close).atexit = False
        threading.Thread(target=self._serving.accept, name="tiering-buffer-server", daemon=True).start()

    def offer(self, buffer: SsdBuffer, choice: ReadaheadConfig, kept_bytes: int) -> None:
        """Fill this buffer in epochs from now on."""
        self._serving.offered = (buffer, choice, kept_bytes)

    def refuse(self, key: Key, error: BaseException) -> None:
        """Tell the ranks that begin this epoch why there is none."""
        run = self._serving.run(key)
        run.refused = time.monotonic()
        self._serving.fail(run, error)


class Serving:
    """What the threads of a server have in common; `changed` guards all of it."""

    def __init__(self, machine: MachineProcesses) -> None:
        self.machine, self.changed = machine, threading.Condition()
        self.offered: tuple[SsdBuffer, ReadaheadConfig, int] | None = None
        self._listener, self.address = listen()
        self._runs: dict[Key, Run] = {}
        self._closing, self._process = False, os.getpid()
        _serving.add(self)
        _stop_with_process()

    def run(self, key: Key) -> Run:
        """The epoch of this key, which begins with the first rank that asks."""
        with self.changed:
            return self._runs.setdefault(key, Run(key))

    def fail(self, run: Run, error: BaseException) -> None:
        """End an epoch for all ranks; the first error counts."""
        with self.changed:
            run.error = run.error or told(error)
            members = list(run.members.values())
            core = run.core
            self.changed.notify_all()
        if core is not None:
            core.stop()
        for member in members:
            tell(member.feed, run.error)

    def close(self) -> None:
        """Stop listening, once epochs that are under way have ended."""
        if self._process != os.getpid():  # a fork, which has no such threads and may find the condition taken
            return
        with self.changed:
            self._closing = True
            self.changed.notify_all()

    def accept(self) -> None:
        """Take connections of this machine's ranks, and nobody else's; look after those that do not come."""
        processes = {self.machine.group.process(k).pid: k for k in range(self.machine.size)}
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        while not self._is_over():
            if not poll.poll(_WATCH_SECONDS * 1000):
                self._watch()
                continue
            channel = Channel(self._listener.accept()[0])
            member = processes.get(channel.peer)
            if member is None:
                channel.close()
                continue
            threading.Thread(target=self._serve, args=(channel, member), name="tiering-rank", daemon=True).start()
        self._listener.close()
        with self.changed:
            begun = [run for run in self._runs.values() if run.members]
        for run in begun:
            self.fail(run, self.machine.ended(self.machine.own, "or has given up its loader"))

    def _is_over(self) -> bool:
        with self.changed:
            return self._closing and not self._unheard() and not any(run.started for run in self._runs.values())

    def _unheard(self) -> bool:
        """Whether a rank may still ask for an epoch that was refused, and is to hear why."""
        late = time.monotonic() - _REFUSAL_SECONDS
        return any(run.refused > late and len(run.members) < self.machine.size - 1 for run in self._runs.values())

    def _watch(self) -> None:
        """Fail epochs that wait for a process that has ended; say once a minute whom others wait for."""
        with self.changed:
            waiting = [run for run in self._runs.values() if run.members and not run.started and run.error is None]
        for run in waiting:
            missing = [k for k in range(self.machine.size) if k not in run.members]
            for k in missing:
                if not self.machine.is_alive(k):
                    self.fail(run, self.machine.ended(k, f"and does not begin epoch {run.key[0]}"))
            if missing and time.monotonic() - run.warned > _PATIENCE:
                run.warned = time.monotonic()
                names = ", ".join(self.machine.name(k) for k in missing)
                _log.warning(
                    "epoch %d: after %.0f s the other ranks still wait for %s to begin it", run.key[0],
                    time.monotonic() - run.since, names,
                )  # fmt: skip

    def _serve(self, channel: Channel, number: int) -> None:
        try:
            header, _ = channel.receive(lambda: self._expect_alive(number))
            run = self.run((int(header["epoch"]), int(header["turn"])))
            if header["wants"] == "slots":
                with self.changed:
                    member = run.members[number]
                    if member.left:
                        return
                    member.giving = threading.current_thread()
                self._give(run, member, channel)
            else:
                self._feed(run, Member(number, channel))
        except (EOFError, OSError, DeviceError):
            pass  # whoever feeds an epoch says so
        finally:
            channel.close()

    def _expect_alive(self, number: int) -> None:
        if not self.machine.is_alive(number):
            raise self.machine.ended(number, "")

    def _feed(self, run: Run, member: Member) -> None:
        """Take what a rank needs, until it leaves the epoch or ends."""
        with self.changed:
            run.members[member.number] = member
            refused = run.error
            begins = len(run.members) == self.machine.size and refused is None
            run.started = run.started or begins
        if begins:
            threading.Thread(target=self._carry_out, args=(run,), name="tiering-merge", daemon=True).start()
        if refused is not None:
            tell(member.feed, refused)
            with self.changed:
                self.changed.notify_all()
        self._watch()
        try:
            while self._hear(run, member, *member.feed.receive(lambda: self._expect_alive(member.number))):
                pass
        except (EOFError, OSError, DeviceError):
            self.fail(run, self.machine.ended(member.number, f"in the middle of epoch {run.key[0]}"))
        with self.changed:
            member.left = True
            self.changed.notify_all()
        self._release_held(run, member)
        if member.giving is not None:
            member.giving.join()
            self._release_held(run, member)
        member.completed = member.ended and not member.batches
        self._drain(run, member)
        with self.changed:
            member.gone = True
            if not run.started and len(run.members) == self.machine.size and run.finished:
                self._runs.pop(run.key, None)
            self.changed.notify_all()

    def _hear(self, run: Run, member: Member, header: dict[str, Any], payload: bytes) -> bool:
        """A message of a rank. False: it leaves."""
        if header["says"] == "release":
            self._release(run, member)
            return True
        with self.changed:
            if header["says"] == "rows":
                member.rows.append(np.frombuffer(payload, np.uint32))
            member.ended = member.ended or header["says"] == "end"
            self.changed.notify_all()
        return str(header["says"]) != "leave"

    def _drain(self, run: Run, member: Member) -> None:
        """Give slots back that wait for a rank that has left, as their rows arrive."""
        while run.core is not None:
            with self.changed:
                self.changed.wait_for(lambda: member.batches or not member.adding or run.error)
                if run.error is not None or not member.batches:
                    return
                batch, part, member.part = member.batches.popleft(), member.part, 0
            try:
                run.core.wait(batch, part)  # and releases it
            except (OSError, ValueError):
                return

    def _carry_out(self, run: Run) -> None:
        """One epoch, from the moment that all ranks have begun it to the last that leaves."""
        assert self.offered is not None
        buffer, choice, kept_bytes = self.offered
        with self.changed:  # an epoch that all have left gives the buffer back in a moment
            self.changed.wait_for(
                lambda: not any(o.started and o.finished for o in self._runs.values() if o is not run)
            )
        try:
            with buffer.epoch(choice) as core:
                run.core = core
                opened = {
                    "alone": core is None, "pools": buffer.pools, "choice": vars(choice), "kept_bytes": kept_bytes,
                    "arena": buffer.arena.size,
                }  # fmt: skip
                for member in run.members.values():
                    with suppress(OSError):
                        member.feed.send(opened, descriptor=buffer.descriptor)
                try:
                    if core is not None:
                        self._merge(run, core)
                except (OSError, ValueError) as error:
                    self.fail(run, error)
                with self.changed:
                    run.fed = True
                    self.changed.notify_all()
                    self.changed.wait_for(lambda: run.finished)
        except Exception as error:
            self.fail(run, error)
        with self.changed:
            self.changed.wait_for(lambda: run.finished)
            self._runs.pop(run.key, None)
            run.core = None
            self.changed.notify_all()

    def _merge(self, run: Run, core: native.RowBuffer) -> None:
        """Plan batch i of every rank before batch i + 1 of any: whoever waits for the others at each step of training
        finds that what they need for it comes first.
        """
        members = [run.members[number] for number in sorted(run.members)]
        while members and run.error is None:
            members = [member for member in members if self._has_next(run, member)]
            for member in members:
                if not self._add_next(run, core, member):
                    return  # readers met an error, which those hear who wait for rows, or the epoch was stopped
        core.end()

    def _has_next(self, run: Run, member: Member) -> bool:
        """Wait for what the next batch of a rank needs. False: there is none."""
        with self.changed:
            self.changed.wait_for(lambda: member.rows or member.ended or member.left or run.error)
            return bool(member.rows) and not member.left

    def _add_next(self, run: Run, core: native.RowBuffer, member: Member) -> bool:
        """Plan the next batch of a rank, where it has not left. False: the core takes none any more."""
        with self.changed:
            if member.left:
                return True
            rows, member.adding = member.rows.popleft(), True
        more = core.add_rows(rows)
        with self.changed:
            member.adding = False
            if more:
                member.batches.append(run.added)
                run.added += 1
            self.changed.notify_all()
        if more:
            tell(member.feed, {"planned": 1})
        return more

    def _give(self, run: Run, member: Member, channel: Channel) -> None:
        """Tell a rank where the rows of its batches lie, one batch after the other."""
        assert self.offered is not None
        buffer = self.offered[0]
        try:
            while True:
                header, _ = channel.receive(lambda: self._expect_alive(member.number))
                slots, places, batch_rows, last = self._take(run, member, int(header["batch"]), int(header["part"]))
                channel.send(
                    {"slots": len(slots), "batch_rows": batch_rows, "last": last, "counters": buffer.counters()},
                    np.concatenate([slots, places]).view(np.uint8).data,
                )
        except RefusalError as refused:
            tell(channel, refused.told)

    def _take(self, run: Run, member: Member, batch: int, part: int) -> tuple[Places, Places, int, bool]:
        """The next part of a rank's batches, by the rank's own numbers; see `RowBuffer::wait`."""
        assert self.offered is not None
        buffer = self.offered[0]
        with self.changed:
            self.changed.wait_for(
                lambda: len(member.batches) > batch - member.released or member.left or run.error or run.fed
            )
            ahead = batch - member.released
            planned = member.batches[ahead] if ahead < len(member.batches) else run.added  # the core says why
        if run.error is not None or run.core is None:
            raise RefusalError(run.error or {})
        try:
            with buffer.errors():
                taken = run.core.take(planned, part)
        except Exception as error:
            raise RefusalError(run.error or told(error)) from None
        with self.changed:
            member.held.append(taken[3])
        return taken

    def _release(self, run: Run, member: Member) -> None:
        """A rank reads no more of the part that it has held longest."""
        with self.changed:
            batch, part, last = member.batches[0], member.part, member.held.popleft()
            member.part = 0 if last else part + 1
            if last:
                member.batches.popleft()
                member.released += 1
        with suppress(OSError, ValueError):  # the core's epoch has ended
            if run.core is not None:
                run.core.release(batch, part)

    def _release_held(self, run: Run, member: Member) -> None:
        """A rank that has left reads nothing any more."""
        while member.held:
            self._release(run, member)

    def end_with_interpreter(self) -> None:
        """Where the owner came to the end of its epochs, let the others come to theirs; then end the core's threads."""
        if self._process != os.getpid():
            return
        with self.changed:
            self.changed.wait_for(lambda: not self._unheard(), _REFUSAL_SECONDS)
            runs = [run for run in self._runs.values() if run.core is not None]
            for run in runs:
                if run.members[self.machine.own].completed:
                    self.changed.wait_for(lambda run=run: run.finished or run.error, _PATIENCE)  # type: ignore[misc]
        for run in runs:
            if (core := run.core) is not None:
                self.fail(run, self.machine.ended(self.machine.own, f"in the middle of epoch {run.key[0]}"))
                core.cancel()


_serving: weakref.WeakSet[Serving] = weakref.WeakSet()
_stopped_with = 0


def _stop_with_process() -> None:
    """End what this process serves when it ends: also one of `multiprocessing`, which knows no `atexit`."""
    global _stopped_with
    if _stopped_with != os.getpid():
        _stopped_with = os.getpid()
        Finalize(None, _stop_all, exitpriority=0)


def _stop_all() -> None:
    for serving in list(_serving):
        serving.end_with_interpreter()
