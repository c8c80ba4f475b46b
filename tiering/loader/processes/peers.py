"""A group of processes of one machine, which share host memory, and memory of their GPUs.

They meet in a store of ``torch.distributed``, the process group's own where there is one: each posts the handles that
the others need, and its process id and start time, by which others notice that it has ended.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import mmap
import os
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from tiering.artifacts.storage import storage_errors
from tiering.errors import DeviceError, InputError
from tiering.loader.process import require_torch
from tiering.machine import machine_id

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import ProcessGroup, Store

_POLL_SECONDS = 0.005
_TIMEOUT = 120.0
Fill = Callable[[npt.NDArray[np.uint8]], None]  # writes all of a block of memory


@dataclass(frozen=True)
class Process:
    """A process by number and start, so that a later one with its number is not taken for it."""

    pid: int
    started: str  # start time in the kernel's ticks; empty if there was no such process

    def alive(self) -> bool:
        """Return whether it still runs."""
        return bool(self.started) and _start(self.pid) == self.started


def _start(pid: int) -> str:
    """Return when a process started; empty if there is none, or it has ended and waits to be reaped."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    fields = text.rpartition(")")[2].split()  # the name before may hold anything
    return "" if fields[0] in "ZX" else fields[19]


class PeerGroup:
    """Processes 0 .. size - 1 of one machine; where there is a peer tier, one for each of its GPUs.

    Parameters
    ----------
    rank, size
        Number of this process, and number of processes.
    store
        ``torch.distributed.Store`` that all of them use, such as a ``FileStore`` of a new file.
    timeout
        Seconds to wait for the others.
    """

    def __init__(self, rank: int, size: int, store: Store, timeout: float = _TIMEOUT) -> None:
        if not 0 <= rank < size:
            raise InputError(f"peers: expected a rank of 0 to {size - 1}, found {rank}")
        self.rank, self.size, self.timeout, self.pid = rank, size, timeout, os.getpid()
        self._store = store
        self._members: dict[int, Process] = {}
        self._post(f"member/{rank}", [os.getpid(), _start(os.getpid())])

    @classmethod
    def on_this_machine(cls, rank: int, size: int, store: Store, timeout: float = _TIMEOUT) -> PeerGroup | None:
        """Group the processes among 0 .. size - 1, of any machines, that run here; ``None`` if this one is alone."""
        from torch.distributed.distributed_c10d import PrefixStore

        machine, keys = machine_id(), [f"machine/{other}" for other in range(size)]
        with _store_errors(f"not all of {size} processes came within {timeout:g} s"):
            store.set(keys[rank], machine)
            store.wait(keys, timedelta(seconds=timeout))
            here = [other for other, key in enumerate(keys) if store.get(key).decode() == machine]
        if len(here) == 1:
            return None
        return cls(here.index(rank), len(here), PrefixStore(f"from-{here[0]}", store), timeout)

    def numbered(self, topic: str) -> str:
        """Return `topic` with a sequence number, the same in every process if all ask in one order."""
        return f"{topic}/{self._add(f'{topic}/sequence/{self.rank}', 1)}"

    def exchange(self, topic: str, payload: Any) -> list[Any]:
        """Exchange JSON types by a topic of `numbered`; return each rank's value; `DeviceError` if one ends."""
        self._post(f"{topic}/{self.rank}", payload)
        deadline = time.monotonic() + self.timeout
        return [self._wait(f"{topic}/{rank}", rank, deadline) for rank in range(self.size)]

    def check(self) -> None:
        """Raise a `DeviceError` if a process of the group has ended: the memory of its GPU is gone."""
        for rank, member in self._members.items():
            if not member.alive():
                raise DeviceError(
                    f"peer {rank} (process {member.pid}) has ended, and the memory that it shared is gone; start "
                    "all processes again"
                )

    def process(self, rank: int) -> Process:
        """Return the process of a rank that has taken part in an `exchange`."""
        return self._members[rank] if rank != self.rank else Process(os.getpid(), _start(os.getpid()))

    def leave(self, topic: str) -> bool:
        """Tell the others that this process reads their memory no more; returns whether they said so or ended."""
        deadline = time.monotonic() + self.timeout
        with suppress(DeviceError):  # the process that keeps the store has ended: whoever runs cannot say so
            self._post(f"{topic}/left/{self.rank}", None)
        for rank, member in self._members.items():
            while member.alive():
                with suppress(DeviceError):
                    if self._posted(f"{topic}/left/{rank}"):
                        break
                if time.monotonic() > deadline:
                    return False
                time.sleep(_POLL_SECONDS)
        return True

    def host_memory(self, key: str, nbytes: int, fill: Fill) -> npt.NDArray[np.uint8]:
        """Return memory of this machine, at least one byte, by `key`: same key, same bytes.

        The first process that asks fills it, while others wait. An anonymous file, which leaves no name behind after a
        kill; the kernel frees it with the last process that maps it. The maker posts its descriptor, which others open
        under ``/proc``. Once the maker has released the memory, the next process that asks makes another.
        """
        name = f"tiering-{hashlib.blake2b(key.encode(), digest_size=12).hexdigest()}"
        for copy in itertools.count():
            topic = f"host/{name}/{copy}"
            if self._add(topic, 1) == 1:
                return self._make(topic, name, nbytes, fill)
            maker = self._wait(f"{topic}/maker", None, time.monotonic() + self.timeout)
            made = self._wait(f"{topic}/made", maker, None)  # none: that process could not make it
            memory = None if made is None else map_memory(int(made[0]), int(made[1]), name, nbytes)
            if memory is not None:
                return memory
        raise AssertionError("unreachable")

    def _make(self, topic: str, name: str, nbytes: int, fill: Fill) -> npt.NDArray[np.uint8]:
        self._post(f"{topic}/maker", self.rank)
        descriptor, made = -1, None
        try:
            with storage_errors(Path(name)):
                descriptor, memory = shared_memory(name, nbytes)
                fill(memory)
            made = [os.getpid(), descriptor]
        finally:
            if made is None and descriptor >= 0:
                os.close(descriptor)
            self._post(f"{topic}/made", made)  # none: the next that asks tries for itself
        weakref.finalize(memory, os.close, descriptor)
        return memory

    def _post(self, key: str, payload: Any) -> None:
        with _store_errors():
            self._store.set(key, json.dumps(payload))
            self._store.add(f"{key}/posted", 1)

    def _add(self, key: str, number: int) -> int:
        with _store_errors():
            return int(self._store.add(key, number))

    def _posted(self, key: str) -> bool:
        return self._add(f"{key}/posted", 0) > 0  # the only operation of stores that never waits

    def _read(self, key: str) -> Any:
        with _store_errors():
            return json.loads(self._store.get(key))

    def _meet(self, rank: int) -> None:
        """Note the process of a rank, once it has come."""
        if rank not in self._members and rank != self.rank and self._posted(f"member/{rank}"):
            self._members[rank] = Process(*self._read(f"member/{rank}"))

    def _wait(self, key: str, rank: int | None, deadline: float | None) -> Any:
        """Wait for what a process, or any, posts as `key`; `deadline` ``None``: as long as that process runs."""
        while not self._posted(key):
            for other in range(self.size):
                self._meet(other)
            self.check()
            if deadline is not None and time.monotonic() > deadline:
                who = "the others" if rank is None else f"peer {rank} of {self.size}"
                raise DeviceError(
                    f"{who} did not come within {self.timeout:g} s ({key}); are all processes started, on this "
                    "machine, with the same layout?"
                )
            time.sleep(_POLL_SECONDS)
        if rank is not None:
            self._meet(rank)
        return self._read(key)

    def __repr__(self) -> str:
        return f"<PeerGroup {self.rank} of {self.size}>"


def map_memory(
    pid: int, descriptor: int, name: str, nbytes: int, access: int = mmap.ACCESS_WRITE
) -> npt.NDArray[np.uint8] | None:
    """Map a descriptor of shared memory of another process; ``None`` if it does not have that memory any more."""
    entry = Path(f"/proc/{pid}/fd/{descriptor}")
    try:
        if not str(entry.readlink()).startswith(f"/memfd:{name} "):
            return None
        opened = os.open(entry, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return mapped(opened, nbytes, access) if os.fstat(opened).st_size == nbytes else None
    finally:
        os.close(opened)  # the mapping stays


@contextmanager
def _store_errors(what: str = "the store through which processes connect does not answer") -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # torch's class for all errors there
        raise DeviceError(f"peers: {what}: {error}") from error


_groups: weakref.WeakKeyDictionary[ProcessGroup, PeerGroup | None] = weakref.WeakKeyDictionary()
_from_torchrun: list[PeerGroup | None] = []


def find_group(peers: Any) -> PeerGroup | None:
    """Return the processes of this machine that `peers` means; all of a group make the first call together."""
    if peers is None or isinstance(peers, PeerGroup):
        return peers
    require_torch()
    import torch.distributed as dist

    if dist.is_available() and isinstance(peers, dist.ProcessGroup):
        return _of_process_group(peers)
    if peers not in ("auto", "off"):
        raise InputError(f"peers: expected auto, off, a process group or a PeerGroup, found {peers!r}")
    if peers == "off" or not dist.is_available():
        return None
    if dist.is_initialized():
        return _of_process_group(cast("ProcessGroup", dist.group.WORLD))
    try:
        alone = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) == 1
    except ValueError:
        raise InputError("LOCAL_WORLD_SIZE: expected a whole number, as torchrun sets it") from None
    if alone:
        return None
    if not _from_torchrun:
        from torch.distributed.distributed_c10d import PrefixStore
        from torch.distributed.rendezvous import rendezvous

        with _store_errors("torchrun's store"):
            store, rank, size = next(rendezvous("env://"))
        _from_torchrun.append(PeerGroup.on_this_machine(rank, size, PrefixStore("tiering", store)))
    return _from_torchrun[0]


def _of_process_group(group: ProcessGroup) -> PeerGroup | None:
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import PrefixStore, _get_default_store

    if group not in _groups:
        ranks = dist.get_process_group_ranks(group)
        name = hashlib.blake2b(str(ranks).encode(), digest_size=8).hexdigest()
        store = PrefixStore(f"tiering-{name}", _get_default_store())
        _groups[group] = PeerGroup.on_this_machine(dist.get_rank(group), len(ranks), store)
    return _groups[group]


def shared_memory(name: str, nbytes: int) -> tuple[int, npt.NDArray[np.uint8]]:
    """Return the descriptor of an anonymous file, by which other processes map it, and its memory, zeroed."""
    descriptor = os.memfd_create(name)
    try:
        os.ftruncate(descriptor, nbytes)
        return descriptor, mapped(descriptor, nbytes)
    except BaseException:
        os.close(descriptor)
        raise


def mapped(descriptor: int, nbytes: int, access: int = mmap.ACCESS_WRITE) -> npt.NDArray[np.uint8]:
    """Map memory of `shared_memory` in any process; `access`: ``mmap.ACCESS_READ`` to read only."""
    block = mmap.mmap(descriptor, nbytes, access=access)
    block.madvise(mmap.MADV_HUGEPAGE)  # scattered reads need fewer entries of page tables then
    return np.frombuffer(block, np.uint8)
