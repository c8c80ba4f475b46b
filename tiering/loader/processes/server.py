"""The server of a buffer that the processes of one machine share, in the process that owns the buffer."""

from __future__ import annotations

import logging
import os
import select
import threading
import time
import weakref
from multiprocessing.util import Finalize

from tiering.errors import DeviceError
from tiering.loader.processes.channel import Channel, listen
from tiering.loader.processes.epoch import Key, Member, SharedEpoch
from tiering.loader.processes.machine import MachineProcesses
from tiering.loader.tables.ssd_buffer import SsdBuffer
from tiering.readahead.config import ReadaheadConfig

_log = logging.getLogger("tiering.loader")
_WATCH_SECONDS = 0.25
_REFUSAL_SECONDS = 10.0
"""Seconds in which late processes can ask why an epoch was refused, though the owner has given up its loader."""
_PATIENCE = 60.0
"""Seconds until a warning names the processes that do not begin an epoch; the owner, at its end, waits as long."""


class BufferServer:
    """A server for the processes of this machine, as long as `loader` lives and epochs are under way.

    `offered`: the buffer that epochs fill, its configuration, and bytes of sampled batches that each process keeps.
    """

    def __init__(self, machine: MachineProcesses, loader: object) -> None:
        self.machine, self.changed = machine, threading.Condition()
        self.offered: tuple[SsdBuffer, ReadaheadConfig, int] | None = None
        self._listener, self.address = listen()
        self._epochs: dict[Key, SharedEpoch] = {}
        self._closing, self._process = False, os.getpid()
        _servers.add(self)
        _stop_with_process()
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
        own = self.machine.own
        with self.changed:
            self.changed.wait_for(lambda: not self._has_unheard_refusal(), _REFUSAL_SECONDS)
            running = [epoch for epoch in self._epochs.values() if epoch.core is not None]
            for epoch in running:
                if epoch.members[own].completed:
                    self.changed.wait_for(lambda e=epoch: e.finished or e.error, _PATIENCE)  # type: ignore[misc]
        for epoch in running:
            if (core := epoch.core) is not None:
                epoch.fail(self.machine.ended(own, f"in the middle of epoch {epoch.key[0]}"))
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
                    epoch.fail(self.machine.ended(number, f"and does not begin epoch {epoch.key[0]}"))
            now = time.monotonic()
            if missing and now - epoch.warned > _PATIENCE:
                epoch.warned = now
                names = ", ".join(self.machine.name(number) for number in missing)
                _log.warning(
                    "epoch %d: after %.0f s the other ranks still wait for %s to begin it", epoch.key[0],
                    now - epoch.since, names,
                )  # fmt: skip

    def _serve(self, channel: Channel, number: int) -> None:
        """Serve a connection: what a process needs in an epoch, or where its rows lie."""
        try:
            header, _ = channel.receive(lambda: self.machine.expect_alive(number))
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


_servers: weakref.WeakSet[BufferServer] = weakref.WeakSet()
_stopped_with = 0


def _stop_with_process() -> None:
    """End all servers when this process ends: also one of `multiprocessing`, which does not run `atexit`."""
    global _stopped_with
    if _stopped_with != os.getpid():
        _stopped_with = os.getpid()
        Finalize(None, _stop_all, exitpriority=0)


def _stop_all() -> None:
    for server in list(_servers):
        server.end_with_interpreter()
